"""The wheel in clean environments of every Python that is here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from commands import CommandFailed, output, variables

MINORS = range(10, 15)
"""Python 3.10 to 3.14, as in the classifiers of pyproject.toml."""


def pythons() -> dict[str, str | None]:
    """Return an interpreter for each supported Python; None for versions that this machine lacks."""
    return {f"3.{minor}": _python(minor) for minor in MINORS}


def _python(minor: int) -> str | None:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [f"python3.{minor}", *map(str, sorted(pyenv.glob(f"3.{minor}.*/bin/python"), reverse=True))]
    for candidate in candidates:
        command = shutil.which(candidate)
        # pyenv's shims exist for versions that are not selected, and fail.
        if command and subprocess.run([command, "-c", ""], capture_output=True, check=False).returncode == 0:
            return command
    return None


class CleanEnvironment:
    """A venv of one Python, with the wheel and one extra."""

    def __init__(self, python: str, folder: Path, wheel: Path, extra: str, *first: str) -> None:
        self.folder = folder
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self._run([python, "-m", "venv", str(folder)])
        pip = [str(self.bin / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        self._run([*pip, *first, f"vllm-lpkit[{extra}] @ {wheel.resolve().as_uri()}" if extra else str(wheel)])

    def lpkit(self, *arguments: str) -> str:
        """Return the output of ``lpkit *arguments``; it must end with 0."""
        return self._run([str(self.bin / "lpkit"), *arguments])

    def _run(self, command: Sequence[str]) -> str:
        return output(command, self.folder if self.folder.is_dir() else self.folder.parent, variables())


def try_everywhere(wheel: Path, folder: Path, version: str, torch: str) -> Iterator[str]:
    """Install and use the wheel on every Python; yields a line each. torch is installed for this Python only.

    Raises:
        CommandFailed: with the command and what it printed.
    """
    for name, python in pythons().items():
        if python is None:
            yield f"Python {name}: not on this machine"
            continue
        bare = CleanEnvironment(python, folder / f"bare-{name}", wheel, "")
        if f"lpkit {version}\n" not in bare.lpkit("--version"):
            raise CommandFailed(f"lpkit --version does not say {version} on Python {name}")
        json.loads(bare.lpkit("list", "--json"))
        bare.lpkit("doctor")
        new = CleanEnvironment(python, folder / f"new-{name}", wheel, "new")
        new.lpkit("new", "my-proc")
        yield f"Python {name}: list and doctor in a bare install, new with its extra"
    here = CleanEnvironment(sys.executable, folder / "check", wheel, "check,new", torch)
    here.lpkit("new", "my-proc")
    here.lpkit("check", f"{here.folder / 'my-proc/src/my_proc/processor.py'}:MyProc")
    yield f"Python {sys.version_info[0]}.{sys.version_info[1]}: check passes a new plugin, with {torch}"


def inventory(wheel: Path, folder: Path, file: Path) -> None:
    """A CycloneDX file of a bare install, made by cyclonedx-py."""
    python = str(CleanEnvironment(sys.executable, folder, wheel, "").bin / "python")
    # The release is not what lies at an address of this machine.
    for noted in folder.rglob("vllm_lpkit-*.dist-info/direct_url.json"):
        noted.unlink()
    # pip is a tool of the environment, not a part of what is released.
    output([python, "-m", "pip", "uninstall", "-q", "-y", "pip", "setuptools"])
    command = ["environment", "--output-reproducible", "--of", "JSON", "-o", str(file), python]
    output([sys.executable, "-m", "cyclonedx_py", *command])
