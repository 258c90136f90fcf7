"""Whether the ``lpkit`` that plugins import is ours: on PyPI that name belongs to another project.

Ours is the distribution ``vllm-lpkit``. This module imports nothing of lpkit, because it must work when that fails.
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

OURS = ("interfaces/lookup.py", "loading/__init__.py", "interfaces/v2.py")
"""Files by which our package is known; nothing of it is imported to tell."""

_REINSTALL = "pip uninstall -y lpkit; pip install --force-reinstall --no-deps vllm-lpkit"


@dataclass(frozen=True)
class Unusable:
    """Why nothing that imports ``lpkit`` works here."""

    issues: tuple[Issue, ...]

    def to_json(self) -> dict[str, Any]:
        """The document of schema ``lpkit.doctor/1``, as far as it can be told."""
        issues = [asdict(issue) for issue in self.issues]
        return {"schema": SCHEMA, "environment": sys.prefix, "ok": False, "findings": issues}


def broken() -> Unusable | None:
    """What keeps ``import lpkit`` from finding ours, if anything does."""
    found = tuple(issue for issue in squatted() if issue.code in ("lpkit-shadowed", "lpkit-missing"))
    return Unusable(found) if found else None


def squatted(path: Sequence[str] | None = None, folder: Path | None = None) -> list[Issue]:
    """What is wrong with the name ``lpkit`` along ``path``, and in ``folder``, where a server is started from."""
    path = list(sys.path if path is None else path)
    found = [*_distribution(path), *_module(path)]
    if not any(issue.code == "lpkit-shadowed" for issue in found):
        found += _nearby(folder or Path.cwd())
    return found


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
        # An editable install behind an import hook is not found along the path; it is ours if metadata says so.
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
