"""The text of ``lpkit new``: the project that it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lpkit_conformance.discovery.bridgeable import Bridgeable


def lines(project: Path, package: str, class_name: str, notes: Iterable[str], bare: bool) -> Iterator[str]:
    """List what was made, and the next steps; a bare project needs a rule before it can be checked."""
    processor = project / "src" / package / "processor.py"
    folder = f'"{project}"' if " " in str(project) else str(project)
    yield f"Created {project}: {class_name}, a logits processor for both of vLLM's runners."
    yield ""
    yield f"  processor   {processor}"
    yield f"  tests       {project / 'tests'}"
    yield f"  settings    {project / 'pyproject.toml'}"
    for note in notes:
        yield from ("", f"Note: {note}")
    first = f" write the rule in {processor} (a comment shows an example), then:" if bare else ""
    yield from ("", f"Next:{first}", "", f"  cd {folder}", "  pip install -e .", "  lpkit check")


def with_wheel(name: str) -> str:
    """Note on a project that contains its own lpkit."""
    return (
        f"This lpkit comes from a folder of this machine, so the project has its wheel, wheelhouse/{name}, for its CI. "
        "requirements-lpkit.txt says so."
    )


def without_wheel(problem: str) -> str:
    """Note on a project that should contain its own lpkit, and does not."""
    return f"{problem}: put a wheel of vllm-lpkit into wheelhouse, or a URL into requirements-lpkit.txt, for the CI."


def notes(target: Bridgeable, guessed: bool) -> Iterator[str]:
    """More about a wrapped target; ``guessed``: so were the cases."""
    top = target.module.partition(".")[0]
    if target.entry_points:
        provider, names = " and ".join(target.distributions) or top, ", ".join(target.entry_points)
        yield (
            f"{provider} is itself an installed plugin ({names}): a default vLLM loads that entry point too, and does "
            "not start if its class is V1-only. Install a version of it without the entry point, or copy the class "
            "into this project and uninstall it."
        )
    if not target.distributions:
        yield f"No installed distribution provides {top!r}: add the one that does to dependencies."
    if guessed:
        how = "was guessed from its source" if target.keys else "cannot be read from its source"
        yield f"How a request switches it on {how}: see cases under [tool.lpkit] in pyproject.toml."
