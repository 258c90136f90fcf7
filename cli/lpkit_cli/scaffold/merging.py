"""Merges the changes of a template into a project, file by file, and keeps the author's changes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from lpkit_cli.scaffold import git

Fate: TypeAlias = Literal["added", "merged", "removed", "conflict", "kept", "deleted"]
"""kept: the author's own file, not written; deleted: the author deleted it, and it stays deleted."""


@dataclass(frozen=True)
class FileChange:
    """The fate of one file.

    Attributes:
        name: relative to the project, with slashes.
        fate: kind of the change.
        before: content in the project; None: no such file.
        after: new content; None: no such file.
        reason: reason for keeping a file.
    """

    name: str
    fate: Fate
    before: bytes | None
    after: bytes | None
    reason: str = ""


@dataclass(frozen=True)
class Sides:
    """The folders to merge: a project, its original baked form, and the current template with the same answers.

    Attributes:
        labels: names of the three, for conflict marks.
        record: the file that is not merged: the project gets the version of ``new``.
        examples: files whose beginning, up to the given heading, is an example that authors replace ("": the whole
            file). Where both changed it, the author's text stays, without conflict marks.
    """

    project: Path
    base: Path
    new: Path
    labels: tuple[str, str, str]
    record: str
    examples: Mapping[str, str] = field(default_factory=dict)


def plan(sides: Sides) -> list[FileChange]:
    """Return the changes that bring the project to ``new``; writes nothing.

    Raises:
        UsageError: git is missing, or cannot merge a file.
    """
    names = sorted(_files(sides.base) | _files(sides.new))
    return [change for name in names if (change := _change(name, sides))]


def write(project: Path, changes: list[FileChange]) -> None:
    """Write the planned changes.

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


def _change(name: str, sides: Sides) -> FileChange | None:
    path = sides.project / name
    ours, old, todays = _bytes(path), _bytes(sides.base / name), _bytes(sides.new / name)
    if name == sides.record:
        return None if ours == todays else FileChange(name, "merged", ours, todays)
    if ours is not None and b"\r\n" in ours:  # a checkout on Windows
        old, todays = _with_crlf(old), _with_crlf(todays)
    if old == todays or ours == todays:
        return None
    obstacle = _obstacle(path, sides.project)
    if obstacle:
        return FileChange(name, "kept", ours, ours, obstacle)
    if ours is None and old is not None:
        return FileChange(name, "deleted", None, None, "you deleted it; the template has changed it")
    if ours is None or ours == old:
        return FileChange(name, "removed" if todays is None else "added" if ours is None else "merged", ours, todays)
    if old is None:
        return FileChange(name, "kept", ours, ours, "you have your own file; the template now has this file as well")
    if todays is None:
        return FileChange(name, "kept", ours, ours, "you changed it; the template no longer has this file")
    return _merged(name, ours, old, todays, sides)


def _merged(name: str, ours: bytes, old: bytes, todays: bytes, sides: Sides) -> FileChange | None:
    merged, conflict = _merge(ours, old, todays, sides.labels)
    if conflict and name in sides.examples:
        heading = sides.examples[name].encode()
        if not heading:
            return FileChange(name, "kept", ours, ours, "it is yours; the template's example has changed")
        example = ours.partition(heading)[0]
        old, todays = (example + b"".join(side.partition(heading)[1:]) for side in (old, todays))
        merged, conflict = _merge(ours, old, todays, sides.labels)
    if merged == ours:
        return None
    return FileChange(name, "conflict" if conflict else "merged", ours, merged)


def _merge(ours: bytes, old: bytes, todays: bytes, labels: tuple[str, str, str]) -> tuple[bytes, bool]:
    with tempfile.TemporaryDirectory(prefix="lpkit-merge-") as scratch:
        files = Path(scratch, "ours"), Path(scratch, "base"), Path(scratch, "theirs")
        for file, content in zip(files, (ours, old, todays), strict=True):
            file.write_bytes(content)
        return git.merge(*files, labels)


def _obstacle(path: Path, project: Path) -> str:
    """Return the reason why ``path`` cannot be written; "" if it can be."""
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
