"""Wheel and sdist, built once per session and installed outside the checkout, without downloading anything."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Installed:
    """An environment of its own that shares this one's dependencies, but not its checkout of lpkit."""

    python: Path
    scripts: Path
    site: Path
    home: Path

    def run(self, *command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``python *command`` there; HOME does not exist."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MYPY"))}
        done = subprocess.run(
            [str(self.python), *map(str, command)],
            cwd=cwd,
            env={**environment, "HOME": str(self.home), "USERPROFILE": str(self.home), "PYTHONUTF8": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def lpkit(self, *arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``lpkit *arguments`` there, through the module behind the script."""
        return self.run("-m", "lpkit_cli.app", *arguments, cwd=cwd, check=check)

    def install(self, *what: str | Path) -> None:
        """pip install, without dependencies, from what is at hand."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q", "--no-deps"]
        done = subprocess.run(
            [*pip, "--no-index", "--no-build-isolation", "--disable-pip-version-check", *map(str, what)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def build(project: Path, output: Path) -> tuple[Path, Path]:
    """``python -m build`` without isolation: (wheel, sdist). The wheel is made from the sdist."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "-o", str(output), str(project)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = output.glob("*.whl"), output.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """lpkit's own (wheel, sdist)."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def environment(folder: Path, requirements: Sequence[str | Path], *, bare: bool = False) -> Installed:
    """A venv in ``folder`` with ``requirements``, and, unless ``bare``, this environment's other packages visible."""
    venv.create(folder, with_pip=False)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    variables = {"base": str(folder), "platbase": str(folder)}
    scheme = "nt" if os.name == "nt" else "posix_prefix"
    site = Path(sysconfig.get_path("purelib", scheme, variables))
    if not bare:
        # .pth files inside the folders named here are not followed: an editable lpkit stays invisible.
        parents = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (site / "parent.pth").write_text("\n".join(sorted(parents)), encoding="utf-8")
    python = scripts / ("python.exe" if os.name == "nt" else "python")
    made = Installed(python, scripts, site, folder / "no-such-home")
    made.install(*requirements)
    return made


@pytest.fixture(scope="session")
def bare_environment() -> Callable[..., Installed]:
    """``bare_environment(folder, requirements)``: a venv that sees nothing of this environment."""
    return functools.partial(environment, bare=True)


@pytest.fixture(scope="session")
def installed(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """lpkit's wheel, installed."""
    return environment(tmp_path_factory.mktemp("wheel") / "env", distributions[:1])


@pytest.fixture(scope="session")
def installed_from_sdist(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """lpkit's sdist, installed."""
    return environment(tmp_path_factory.mktemp("sdist") / "env", distributions[1:])


@pytest.fixture
def lpkit_from_checkout():
    """``lpkit *arguments`` as an editable install runs it."""
    sources = os.pathsep.join(str(ROOT / folder) for folder in ("sdk", "conformance", "cli"))

    def run(*arguments: str) -> None:
        command = [sys.executable, "-m", "lpkit_cli.app", *arguments]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": sources}, check=True, capture_output=True)

    return run


@pytest.fixture(scope="session", params=["processor", "request"])
def baked(
    request: pytest.FixtureRequest,
    distributions: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Installed]:
    """(project, environment): a scaffolded plugin of either style, installed next to lpkit's wheel."""
    folder = tmp_path_factory.mktemp(request.param)
    made = environment(folder / "env", distributions[:1])
    made.lpkit("new", "my-proc", "--style", request.param, cwd=folder)
    made.install(folder / "my-proc")
    return folder / "my-proc", made


@pytest.fixture
def built(baked: tuple[Path, Installed], tmp_path: Path) -> tuple[Path, Path]:
    """The scaffolded plugin's own (wheel, sdist)."""
    return build(baked[0], tmp_path)
