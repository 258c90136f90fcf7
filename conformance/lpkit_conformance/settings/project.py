"""A plugin project's own settings: ``[tool.lpkit]`` and the entry points of its ``pyproject.toml``."""

from __future__ import annotations

import datetime
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from lpkit._nearest import suggest
from lpkit.interfaces.lookup import GROUP

from lpkit_conformance.errors import ProjectError, UsageError
from lpkit_conformance.settings.hosts import HOSTS

KEYS = (
    "cases",
    "hosts",
    "vocab_size",
    "max_num_seqs",
    "expected_failures",
    "against",
    "environment",
    "model",
    "tokenizer",
)


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
    for key in settings:
        if key not in KEYS:
            raise ProjectError(f"{path}: [tool.lpkit] has an unknown key {key!r}", suggest(key, KEYS))
    return Project(
        folder,
        {str(name): str(value).split("[")[0].strip() for name, value in entry_points.items()},
        tuple(_list(path, settings, "cases")),
        _hosts(path, settings),
        _size(path, settings, "vocab_size"),
        _size(path, settings, "max_num_seqs"),
        _expected(path, settings),
        str(_table(path, data, "project").get("name", "")),
        tuple(_against(path, item) for item in _list(path, settings, "against")),
        _environment(path, settings.get("environment", {})),
        _table(path, settings, "model"),
        _tokenizer(path, settings.get("tokenizer", "")),
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


def _list(path: Path, settings: dict[str, Any], key: str) -> list[Any]:
    value = settings.get(key, [])
    if not isinstance(value, list):
        raise ProjectError(f"{path}: [tool.lpkit] {key} must be a list, not {type(value).__name__}")
    return value


def _hosts(path: Path, settings: dict[str, Any]) -> tuple[str, ...] | None:
    if "hosts" not in settings:
        return None
    hosts = tuple(_list(path, settings, "hosts"))
    wrong = [host for host in hosts if host not in HOSTS]
    if wrong or not hosts:
        known = " and ".join(f'"{host}"' for host in HOSTS)
        raise ProjectError(f"{path}: [tool.lpkit] hosts must be of {known}, not {list(hosts)!r}")
    return hosts


def _size(path: Path, settings: dict[str, Any], key: str) -> int | None:
    value = settings.get(key)
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise ProjectError(f"{path}: [tool.lpkit] {key} must be a positive integer, not {value!r}")
    if key == "vocab_size" and value % 128:
        raise ProjectError(f"{path}: [tool.lpkit] vocab_size must be a multiple of 128, not {value}")
    return value


def _environment(path: Path, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ProjectError(f"{path}: [tool.lpkit] environment must be a table of name = string, not {value!r}")
    return {str(name): text for name, text in value.items()}


def _tokenizer(path: Path, value: object) -> str:
    folder = path.parent / value if isinstance(value, str) else None
    if folder is None or not folder.is_dir():
        raise ProjectError(f"{path}: [tool.lpkit] tokenizer must be a folder with tokenizer.json, not {value!r}")
    return str(folder.resolve()) if value else ""


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


def _expected(path: Path, settings: dict[str, Any]) -> tuple[ExpectedFailure, ...]:
    table = settings.get("expected_failures", {})
    where = f"{path}: [tool.lpkit.expected_failures]"
    if not isinstance(table, dict):
        raise ProjectError(f"{where} must be a table of code = reason")
    found = []
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
        found.append(ExpectedFailure(code.upper(), " ".join(value.split()), until))
    return tuple(found)
