"""Checks that ``import lpkit`` finds this project: on PyPI, that name belongs to another project.

This project's distribution is ``vllm-lpkit``. This module imports nothing of lpkit: it must work when that fails.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lpkit_conformance.discovery.metadata import field, find
from lpkit_conformance.doctor.issue import SCHEMA, Issue

OURS = ("interfaces/lookup.py", "loading/__init__.py", "interfaces/v2_interface.py")
"""Files that identify our package without importing it."""

_REINSTALL = "pip uninstall -y lpkit; pip install --force-reinstall --no-deps vllm-lpkit"


@dataclass(frozen=True)
class Unusable:
    """Problems that stop the doctor before it can examine anything else."""

    issues: tuple[Issue, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the part of the document of schema ``lpkit.doctor/1`` that needs no ``lpkit``."""
        issues = [asdict(issue) for issue in self.issues]
        return {"schema": SCHEMA, "environment": sys.prefix, "ok": False, "findings": issues}


def broken() -> Unusable | None:
    """Return the problems that keep ``import lpkit`` from finding our package, if there are any."""
    issues = tuple(issue for issue in squatted() if issue.code in ("lpkit-shadowed", "lpkit-missing"))
    return Unusable(issues) if issues else None


def squatted(path: Sequence[str] | None = None, folder: Path | None = None) -> list[Issue]:
    """Return problems with the name ``lpkit`` along ``path``, and in ``folder``, from which a server is started."""
    path = list(sys.path if path is None else path)
    issues = [*_distribution(path), *_module(path)]
    if not any(issue.code == "lpkit-shadowed" for issue in issues):
        issues += _nearby(folder or Path.cwd())
    return issues


def _distribution(path: Sequence[str]) -> Iterator[Issue]:
    squatter = find("lpkit", path)
    if squatter is None:
        return
    files = {str(file).replace("\\", "/") for file in squatter.files or ()}
    writes = any(file.startswith("lpkit/") or file == "lpkit.py" for file in files)
    effect = "It writes into vllm-lpkit's folder." if writes else "It is not what plugins made with lpkit need."
    yield Issue(
        "lpkit-stranger",
        "error",
        f"an unrelated distribution named lpkit {field(squatter, 'Version')} is installed",
        f"PyPI's lpkit is not this project, whose distribution is vllm-lpkit. {effect}",
        _REINSTALL if writes else "pip uninstall lpkit; pip install vllm-lpkit",
    )


def _module(path: Sequence[str]) -> Iterator[Issue]:
    spec = importlib.machinery.PathFinder.find_spec("lpkit", list(path))
    if spec is None or spec.origin is None:
        # An editable install behind an import hook is not along the path; the metadata decides then.
        if spec is not None or find("vllm-lpkit") is None:
            yield Issue(
                "lpkit-missing",
                "error",
                "the package lpkit cannot be imported here",
                "Plugins made with lpkit import it in vLLM's processes.",
                "pip install vllm-lpkit",
            )
        return
    if not _is_ours(Path(spec.origin)):
        yield Issue(
            "lpkit-shadowed",
            "error",
            f"'import lpkit' finds {spec.origin}, which is not vllm-lpkit's",
            "It precedes vllm-lpkit's in sys.path, or was installed over it; plugins made with lpkit fail at import, "
            "and then vLLM does not start.",
            f"Rename or remove it; if it came from PyPI: {_REINSTALL}",
        )


def _nearby(folder: Path) -> Iterator[Issue]:
    """``python -m`` and ``python FILE`` put a folder first in sys.path; the ``vllm`` command does not."""
    for candidate in (folder / "lpkit.py", folder / "lpkit" / "__init__.py"):
        if candidate.is_file() and not _is_ours(candidate):
            yield Issue(
                "lpkit-nearby",
                "note",
                f"{candidate} would hide lpkit",
                "python -m vllm... started in this folder imports it, not vllm-lpkit's; the vllm command does not.",
                "Rename it, or start the server elsewhere",
            )


def _is_ours(origin: Path) -> bool:
    return all((origin.parent / file).is_file() for file in OURS)
