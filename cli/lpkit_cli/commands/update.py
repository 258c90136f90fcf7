"""``lpkit update``: updates a project to the current template, and keeps the author's changes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from lpkit_conformance.errors import OutputError, UsageError

if TYPE_CHECKING:
    from lpkit_cli.scaffold.merging import FileChange

CONFLICTS = 1
BACKUPS = Path(".lpkit", "before-update")


def update(
    project: Annotated[Path, typer.Argument(help="The project's folder.", show_default="the current one")] = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes as a diff; write nothing.")] = False,
    allow_dirty: Annotated[
        bool,
        typer.Option(
            "--allow-dirty", help="Update even if the work tree has changes; untracked files are copied first."
        ),
    ] = False,
) -> None:
    """Update a project made by lpkit new to the current template; your changes are kept.

    git merges the changes of the template into yours. Where both changed the same lines, the file has both, between
    conflict marks. Exit code 0: up to date or merged; 1: conflicts to resolve; 2: could not run, nothing was written.
    """
    from lpkit_conformance.discovery.metadata import ordered

    from lpkit_cli.scaffold import answers, baking, merging, summary

    record = answers.read(project)
    today = baking.template_versions()[-1]
    if ordered(record.version) > ordered(today):
        problem = f"the project is of template {record.version}, this lpkit has {today}"
        raise UsageError(problem, "install the newer lpkit")
    if record.version == today:
        typer.echo(f"Up to date: template {today}.")
        return
    labels = ("yours", f"template {record.version}", f"template {today}")
    with tempfile.TemporaryDirectory(prefix="lpkit-update-") as scratch:
        base = baking.render(record.answers, Path(scratch, "base"), record.version)
        new = baking.render(record.answers, Path(scratch, "new"))
        changes = merging.plan(merging.Sides(project, base, new, labels, answers.RECORD, record.examples()))
    if dry_run:
        typer.echo("\n".join([*summary.diff(changes), *summary.lines(changes, record.version, today, dry_run=True)]))
    else:
        backups = _write(project, changes, allow_dirty)
        typer.echo("\n".join(summary.lines(changes, record.version, today, backups=backups)))
    if any(change.fate == "conflict" for change in changes):
        raise typer.Exit(CONFLICTS)


def _write(project: Path, changes: list[FileChange], allow_dirty: bool) -> Path | None:
    """Write the changes; return the backup folder of files that git could not restore, or None."""
    from lpkit_cli.scaffold import git, merging

    dirty = git.changed(project)
    if dirty and not allow_dirty:
        more = f" and {len(dirty) - 1} more" if len(dirty) > 1 else ""
        raise UsageError(f"the work tree has changes ({dirty[0]}{more})", "commit them first, or --allow-dirty")
    kept = set() if dirty is None else git.tracked(project) - set(dirty)
    touched = [change for change in changes if change.before is not None and change.after != change.before]
    lost = [change for change in touched if change.name not in kept]
    folder = project / BACKUPS / time.strftime("%Y%m%d-%H%M%S") if lost else None
    try:
        for change in lost:
            assert folder is not None and change.before is not None
            copy = folder / change.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(change.before)
        merging.write(project, changes)
    except OSError as error:
        raise OutputError(f"cannot write {error.filename}: {error.strerror}") from error
    return folder
