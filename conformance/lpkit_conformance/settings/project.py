"""A plugin project's own settings: ``[tool.lpkit]`` and the entry points of its ``pyproject.toml``."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lpkit._nearest import suggest
from lpkit._toml import tomllib
from lpkit.interfaces.lookup import GROUP

from lpkit_conformance.errors import ProjectError, UsageError
from lpkit_conformance.settings.hosts import HOSTS

_LIST = ("a list", lambda value, _: isinstance(value, list))

KEYS: dict[str, tuple[str, Callable[[Any, Path], bool]]] = {
    "cases": _LIST,
    "hosts": (
        f"a list of {' and '.join(map(repr, HOSTS))}",
        lambda value, _: isinstance(value, list) and value != [] and all(host in [*HOSTS] for host in value),
    ),
    "vocab_size": ("a multiple of 128", lambda value, _: type(value) is int and value > 0 and value % 128 == 0),
    "max_num_seqs": ("a positive integer", lambda value, _: type(value) is int and value > 0),
    "expected_failures": ("a table of code = reason", lambda value, _: isinstance(value, dict)),
    "against": _LIST,
    "environment": (
        "a table of name = string",
        lambda value, _: isinstance(value, dict) and all(isinstance(text, str) for text in value.values()),
    ),
    "model": ("a table", lambda value, _: isinstance(value, dict)),
    "tokenizer": (
        "a folder with tokenizer.json",
        lambda value, folder: isinstance(value, str) and Path(folder, value).is_dir(),
    ),
}
"""Settings: each is what the words say, if the function returns True for the value and the project's folder."""


@dataclass(frozen=True)
class ExpectedFailure:
    """A failure that the project knows about."""

    code: str
    reason: str
    until: datetime.date | None = None

    @property
    def expired(self) -> bool:
        return self.until is not None and datetime.date.today() > self.until


@dataclass(frozen=True)
class Against:
    """Name of the processor that ``lpkit bench`` compares with; without a case, with the project's case."""

    target: str
    case: Any = None


@dataclass(frozen=True)
class Project:
    """Settings that the commands read from the current folder."""

    root: Path
    entry_points: dict[str, str] = field(default_factory=dict)
    cases: tuple[Any, ...] = ()
    hosts: tuple[str, ...] | None = None
    vocab_size: int | None = None
    max_num_seqs: int | None = None
    expected: tuple[ExpectedFailure, ...] = ()
    name: str = ""
    against: tuple[Against, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    tokenizer: str = ""

    def owns(self, target: str) -> bool:
        """True if the settings apply to this target: an entry point, a file or a module of the project."""
        if target in self.entry_points or target in self.entry_points.values():
            return True
        name, colon, _ = target.rpartition(":")
        file = name if colon else target
        if file.endswith(".py"):
            return self.root.resolve() in Path(file).resolve().parents
        parts = name.split(".")
        return bool(name) and any(
            Path(folder, *parts).with_suffix(".py").is_file() or Path(folder, *parts, "__init__.py").is_file()
            for folder in self.import_path
        )

    @property
    def import_path(self) -> list[str]:
        """Folders to import the project's own modules from."""
        return [str(folder) for folder in (self.root / "src", self.root) if folder.is_dir()]

    def spec(self, target: str) -> str:
        """Return the object that a target loads."""
        return self.entry_points.get(target, target)

    @property
    def case(self) -> Any:
        """The first case; an empty one if the project gives none."""
        return self.cases[0] if self.cases else {}


NO_PROJECT = Project(Path(os.devnull))
"""The settings of targets that no project owns; nothing is imported from its folder."""


def find(folder: Path) -> Project | None:
    """Return the project in ``folder``, or None if it has no pyproject.toml.

    Raises:
        ProjectError: for TOML that does not parse, and for unknown keys or wrong values in ``[tool.lpkit]``.
    """
    path = folder / "pyproject.toml"
    if not path.is_file():
        return None
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ProjectError(f"{path} cannot be read: {error.strerror}") from None
    entry_points = _table(path, data, "project", "entry-points", GROUP)
    settings = _table(path, data, "tool", "lpkit")
    for key, value in settings.items():
        if key not in KEYS:
            raise ProjectError(f"{path}: [tool.lpkit] has an unknown key {key!r}", suggest(key, KEYS))
        words, holds = KEYS[key]
        if not holds(value, folder):
            raise ProjectError(f"{path}: [tool.lpkit] {key} must be {words}, not {value!r}")
    tokenizer = settings.get("tokenizer")
    return Project(
        folder,
        {str(name): str(value).split("[")[0].strip() for name, value in entry_points.items()},
        tuple(settings.get("cases", ())),
        tuple(settings["hosts"]) if "hosts" in settings else None,
        settings.get("vocab_size"),
        settings.get("max_num_seqs"),
        tuple(_expected(path, settings.get("expected_failures", {}))),
        str(_table(path, data, "project").get("name", "")),
        tuple(_against(path, item) for item in settings.get("against", ())),
        settings.get("environment", {}),
        settings.get("model", {}),
        str(Path(folder, tokenizer).resolve()) if tokenizer else "",
    )


def owner(target: Any, project: Project | None) -> Project:
    """Return the project if its settings apply to the target, which may be a class, else empty settings."""
    return project if project and isinstance(target, str) and project.owns(target) else NO_PROJECT


def entry_points_of(project: Project | None, verb: str) -> list[str]:
    """Return the project's processors, for a command without a target.

    Raises:
        UsageError: if the project has none.
    """
    names = list(project.entry_points) if project else []
    if not names:
        raise UsageError(
            f"nothing to {verb}: name a target (an entry point, module:Class or file.py:Class), or run in the "
            "folder of a project with entry points of the group vllm.logits_processors"
        )
    return names


def _table(path: Path, data: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        data = data.get(key, {})
        if not isinstance(data, dict):
            raise ProjectError(f"{path}: {'.'.join(keys)} must be a table")
    return data


def _against(path: Path, value: object) -> Against:
    where = f"{path}: [tool.lpkit] against"
    if isinstance(value, str):
        return Against(value)
    if not isinstance(value, dict) or not isinstance(value.get("target"), str):
        raise ProjectError(f'{where} must list "module:Class" or {{ target = "module:Class", case = {{...}} }}')
    unknown = sorted(value.keys() - {"target", "case"})
    if unknown:
        raise ProjectError(f"{where}: {value['target']} has unknown keys {unknown}; known: target, case")
    return Against(value["target"], value.get("case"))


def _expected(path: Path, table: dict[str, Any]) -> Iterator[ExpectedFailure]:
    where = f"{path}: [tool.lpkit.expected_failures]"
    for code, value in table.items():
        until = None
        if isinstance(value, dict):
            unknown = set(value) - {"reason", "until"}
            if unknown:
                raise ProjectError(f"{where} {code} has unknown keys {sorted(unknown)}; known: reason, until")
            until = value.get("until")
            if until is not None and type(until) is not datetime.date:
                raise ProjectError(f"{where} {code}: until must be a date like 2027-01-31, not {until!r}")
            value = value.get("reason")
        if not isinstance(value, str) or not value.strip():
            raise ProjectError(f"{where} {code} needs a reason")
        yield ExpectedFailure(code.upper(), " ".join(value.split()), until)
