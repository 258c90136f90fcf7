"""The git commands that projects need: author, origin, first commit, changed files, merge."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from lpkit_conformance.errors import UsageError

_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables of a hook, which name the hook's repository instead of the folder's."""

_SCP_LIKE = re.compile(r"(?:[\w.+-]+@)?(?P<host>[\w.-]+\.[\w-]+):(?P<path>[^/\\].*)")
_URL = re.compile(r"(?:https?|ssh|git)://(?:[^@/]*@)?(?P<host>[^/:]+)(?::\d+)?/(?P<path>.+)")


def run(*arguments: str, folder: Path) -> bytes | None:
    """Return the output of ``git *arguments`` in ``folder``; None without git, or if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env={key: value for key, value in os.environ.items() if key not in _ELSEWHERE},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def line(*arguments: str, folder: Path) -> str:
    """Return the same as text without surrounding space; "" for None."""
    return (run(*arguments, folder=folder) or b"").decode("utf-8", "replace").strip()


def inside(folder: Path) -> bool:
    """Return true if ``folder`` lies in a work tree."""
    return line("rev-parse", "--is-inside-work-tree", folder=folder) == "true"


def address(remote: str) -> str:
    """Return the page of a remote repository, without user and password; "" for a repository on this machine."""
    match = _URL.fullmatch(remote) or _SCP_LIKE.fullmatch(remote)
    return f"https://{match['host']}/{match['path'].strip('/').removesuffix('.git')}" if match else ""


def origin(folder: Path) -> str:
    """Return the page of the repository that ``folder`` was cloned from, or ""."""
    return address(line("remote", "get-url", "origin", folder=folder))


def start(folder: Path) -> str:
    """Make a repository with a first commit in ``folder``; return the problem, or ""."""
    if run("init", "--quiet", "--initial-branch=main", folder=folder) is None:
        return "no git repository was made: git is missing, or older than 2.28"
    run("add", "--all", folder=folder)
    commit = ("commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", "Add what lpkit new made")
    if run(*commit, folder=folder) is None:
        return "the files are staged, not committed: git does not know user.name and user.email"
    return ""


def changed(folder: Path) -> list[str] | None:
    """Return files below ``folder`` that git could not restore, except ignored files; None outside a work tree."""
    if not inside(folder):
        return None
    printed = run("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", ".", folder=folder)
    prefix = line("rev-parse", "--show-prefix", folder=folder)
    return [
        entry[3:].removeprefix(prefix) for entry in (printed or b"").decode("utf-8", "replace").split("\0") if entry
    ]


def tracked(folder: Path) -> set[str]:
    """Return the files below ``folder`` that git tracks, relative to it."""
    return {
        name for name in (run("ls-files", "-z", folder=folder) or b"").decode("utf-8", "replace").split("\0") if name
    }


def merge(ours: Path, base: Path, theirs: Path, labels: tuple[str, str, str]) -> tuple[bytes, bool]:
    """Merge the changes from ``base`` to ``theirs`` into ``ours``; the second result is True with conflict marks.

    Raises:
        UsageError: git is missing, or cannot merge these files.
    """
    named = [word for label in labels for word in ("-L", label)]
    command = ["merge-file", "--stdout", "--diff3", *named, str(ours), str(base), str(theirs)]
    try:
        done = subprocess.run(["git", *command], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"git, which merges, does not run ({error.strerror})", "install git") from None
    if done.returncode >= 128:  # up to 127 it is the number of conflicts
        raise UsageError(f"git cannot merge {ours.name}: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout, done.returncode > 0
