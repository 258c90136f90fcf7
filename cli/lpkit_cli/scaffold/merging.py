"""A project and two templates: what the template changed is merged into what the author changed, file by file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from lpkit_cli.scaffold import git

Fate: TypeAlias = Literal["added", "merged", "removed", "conflict", "kept", "deleted"]
"""kept: the author's own file, not written; deleted: by the author, and not brought back."""


@dataclass(frozen=True)
class Change:
    """What becomes of one file.

    Attributes:
        name: relative to the project, with slashes.
        fate: how it came about.
        before: what the project has; None: no such file.
        after: what it gets; None: no such file.
        reason: for what is kept, why.
    """

    name: str
    fate: Fate
    before: bytes | None
    after: bytes | None
    reason: str = ""


@dataclass(frozen=True)
class Sides:
    """The folders to merge: a project, what it was baked as, and what today's template gives for the same answers.

    Attributes:
        labels: of the three, for the marks of conflicts.
        record: the file that is not merged: the project gets the one of ``new``.
        examples: files whose beginning, up to the given heading, is an example that authors replace ("": all of it).
            What they put there stays as it is where both changed it; no marks are put into it.
    """

    project: Path
    base: Path
    new: Path
    labels: tuple[str, str, str]
    record: str
    examples: Mapping[str, str] = field(default_factory=dict)


def plan(sides: Sides) -> list[Change]:
    """The changes that bring the project to ``new``; nothing is written.

    Raises:
        UsageError: git is missing, or cannot merge a file.
    """
    names = sorted(_files(sides.base) | _files(sides.new))
    return [change for name in names if (change := _change(name, sides))]


def write(project: Path, changes: list[Change]) -> None:
    """Carry the plan out.

    Raises:
        OSError: a file cannot be written.
    """
    for change in changes:
        path = project / change.name
        if change.after == change.before:
            continue
        if change.after is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(change.after)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _change(name: str, sides: Sides) -> Change | None:
    path = sides.project / name
    ours, old, todays = _bytes(path), _bytes(sides.base / name), _bytes(sides.new / name)
    if name == sides.record:
        return None if ours == todays else Change(name, "merged", ours, todays)
    if ours is not None and b"\r\n" in ours:  # a checkout on Windows
        old, todays = _with_crlf(old), _with_crlf(todays)
    if old == todays or ours == todays:
        return None
    obstacle = _obstacle(path, sides.project)
    if obstacle:
        return Change(name, "kept", ours, ours, obstacle)
    if ours is None and old is not None:
        return Change(name, "deleted", None, None, "you deleted it; the template has changed it")
    if ours is None or ours == old:
        return Change(name, "removed" if todays is None else "added" if ours is None else "merged", ours, todays)
    if old is None:
        return Change(name, "kept", ours, ours, "you have your own; the template brings one now")
    if todays is None:
        return Change(name, "kept", ours, ours, "you changed it; the template has none any more")
    return _merged(name, ours, old, todays, sides)


def _merged(name: str, ours: bytes, old: bytes, todays: bytes, sides: Sides) -> Change | None:
    merged, conflict = _merge(ours, old, todays, sides.labels)
    if conflict and name in sides.examples:
        heading = sides.examples[name].encode()
        if not heading:
            return Change(name, "kept", ours, ours, "it is yours; the template's example has changed")
        own = ours.partition(heading)[0]
        old, todays = (own + b"".join(side.partition(heading)[1:]) for side in (old, todays))
        merged, conflict = _merge(ours, old, todays, sides.labels)
    if merged == ours:
        return None
    return Change(name, "conflict" if conflict else "merged", ours, merged)


def _merge(ours: bytes, old: bytes, todays: bytes, labels: tuple[str, str, str]) -> tuple[bytes, bool]:
    with tempfile.TemporaryDirectory(prefix="lpkit-merge-") as scratch:
        files = Path(scratch, "ours"), Path(scratch, "base"), Path(scratch, "theirs")
        for file, content in zip(files, (ours, old, todays), strict=True):
            file.write_bytes(content)
        return git.merge(*files, labels)


def _obstacle(path: Path, project: Path) -> str:
    """Why ``path`` is not written; "" if it can be."""
    if path.exists() and not path.is_file():
        return "it is not a file"
    while path != project:
        if path.is_symlink():
            return "a link leads there"
        path = path.parent
        if path.exists() and not path.is_dir():
            return f"{path.name} is not a folder"
    return ""


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _with_crlf(content: bytes | None) -> bytes | None:
    return content if content is None else content.replace(b"\n", b"\r\n")
