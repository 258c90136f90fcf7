"""The text of ``lpkit update``: the files of a project."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lpkit_cli.scaffold.merging import FileChange

TITLES = {
    "added": "added",
    "merged": "updated",
    "removed": "removed",
    "kept": "kept",
    "deleted": "not brought back",
    "conflict": "CONFLICT",
}


def lines(
    changes: Sequence[FileChange], old: str, new: str, *, dry_run: bool = False, backups: Path | None = None
) -> Iterator[str]:
    """Every file with its change, then the next step."""
    yield f"{'Would update' if dry_run else 'Updated'} from template {old} to {new}:"
    yield ""
    for fate, title in TITLES.items():
        for change in changes:
            if change.fate == fate:
                yield f"  {title:<16}  {change.name}{f': {change.reason}' if change.reason else ''}"
    if backups is not None:
        yield from ("", f"Copies of what git does not have: {backups}")
    conflicts = [change.name for change in changes if change.fate == "conflict"]
    if conflicts and not dry_run:
        yield ""
        yield f"{len(conflicts)} {'file has' if len(conflicts) == 1 else 'files have'} conflicts, between <<<<<<< and"
        yield ">>>>>>>: choose what stays, then run lpkit check."
    elif not dry_run:
        yield from ("", "Next: lpkit check, then commit.")


def diff(changes: Iterable[FileChange]) -> Iterator[str]:
    """The changes as a unified diff."""
    for change in changes:
        if change.before != change.after:
            before, after = _lines(change.before), _lines(change.after)
            source = f"a/{change.name}" if change.before is not None else "/dev/null"
            target = f"b/{change.name}" if change.after is not None else "/dev/null"
            yield from (line.rstrip("\r\n") for line in difflib.unified_diff(before, after, source, target))
            yield ""


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode("utf-8", "replace").splitlines(keepends=True)
