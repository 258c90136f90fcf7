"""A project's entry in a package index: its description, author and repository."""

from __future__ import annotations

import re
from pathlib import Path

from lpkit_conformance.errors import UsageError

from lpkit_cli.scaffold import git

QUESTIONS = {
    "description": "What it does, in one line",
    "author": "Author",
    "email": "E-mail address of the author",
    "repository": "Address of the repository, https://...",
}
DESCRIPTION = "A logits processor for vLLM."

_EMAIL = re.compile(r"[^@\s\"<>]+@[^@\s\"<>]+")
_PAGE = re.compile(r"https?://[^\s\"<>]+")
_MANGLED = re.compile(r"[\x00-\x1f\x7f]|\{\{|\{%|\{#")


def defaults(folder: Path) -> dict[str, str]:
    """Return git's answers for a project in ``folder``."""
    existing = folder if folder.is_dir() else Path.cwd()
    answers = {
        "description": DESCRIPTION,
        "author": git.line("config", "user.name", folder=existing),
        "email": git.line("config", "user.email", folder=existing),
        "repository": git.origin(existing),
    }
    for key, value in answers.items():
        if _problem(key, value):
            answers[key] = ""
    return answers


def checked(answers: dict[str, str]) -> dict[str, str]:
    """Return the answers without surrounding space.

    Raises:
        UsageError: an answer cannot be written into pyproject.toml.
    """
    answers = {key: value.strip() for key, value in answers.items()}
    answers["repository"] = answers["repository"].rstrip("/").removesuffix(".git")
    for key, value in answers.items():
        problem = _problem(key, value)
        if problem:
            raise UsageError(f"{key}: {value!r} {problem}")
    return answers


def _problem(key: str, value: str) -> str:
    if _MANGLED.search(value):
        return "holds control characters or template markers"
    if key == "email" and value and not _EMAIL.fullmatch(value):
        return "is not an e-mail address"
    if key == "repository" and value and not _PAGE.fullmatch(value):
        return "is not the address of a page, https://..."
    return ""
