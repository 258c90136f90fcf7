"""Wheel and sdist, built once in a run and installed outside the checkout, without downloading anything."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WINDOWS = os.name == "nt"


@dataclass(frozen=True)
class Installed:
    """An environment of its own in ``folder`` that has lpkit, but not from its checkout."""

    folder: Path

    @property
    def scripts(self) -> Path:
        return self.folder / ("Scripts" if WINDOWS else "bin")

    @property
    def python(self) -> Path:
        return self.scripts / ("python.exe" if WINDOWS else "python")

    @property
    def site(self) -> Path:
        variables = {"base": str(self.folder), "platbase": str(self.folder)}
        return Path(sysconfig.get_path("purelib", "nt" if WINDOWS else "posix_prefix", variables))

    @property
    def home(self) -> Path:
        """Value of HOME there; the folder does not exist."""
        return self.folder / "no-such-home"

    def run(self, *command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``python *command`` there."""
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

    def install(self, *what: Path) -> None:
        """pip install, without dependencies, from the files available offline."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q", "--no-deps"]
        done = subprocess.run(
            [*pip, "--no-index", "--no-build-isolation", "--disable-pip-version-check", *map(str, what)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


Install = Callable[..., Installed]


@pytest.fixture(scope="session")
def build() -> Callable[[Path, Path], None]:
    """``build(project, output)``: ``python -m build`` without isolation. The wheel is made from the sdist."""

    def run(project: Path, output: Path) -> None:
        command = [sys.executable, "-m", "build", "--no-isolation", "-o", str(output), str(project)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def distributions(once, build) -> tuple[Path, Path]:
    """lpkit's own (wheel, sdist)."""
    folder = once("dist", lambda folder: build(ROOT, folder))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="session")
def environment() -> Install:
    """``environment(folder, *what)``: a venv with ``what``, and, unless ``bare``, this one's other packages visible."""

    def make(folder: Path, *what: Path, bare: bool = False) -> Installed:
        venv.create(folder, with_pip=False)
        made = Installed(folder)
        if not bare:
            # .pth files inside the folders named here are not followed: an editable lpkit stays invisible.
            parents = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
            (made.site / "parent.pth").write_text("\n".join(sorted(parents)), encoding="utf-8")
        made.install(*what)
        return made

    return make


@pytest.fixture(scope="session")
def installed(once, distributions: tuple[Path, Path], environment: Install) -> Installed:
    """lpkit's wheel, installed."""
    return Installed(once("wheel", lambda folder: environment(folder, distributions[0])))


@pytest.fixture(scope="session")
def installed_from_sdist(once, distributions: tuple[Path, Path], environment: Install) -> Installed:
    """lpkit's sdist, installed."""
    return Installed(once("sdist", lambda folder: environment(folder, distributions[1])))
