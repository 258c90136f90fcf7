"""What a project was baked with: the record that ``lpkit new`` leaves, and what 0.1.0 did not record yet."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpkit_conformance.errors import ProjectError

from lpkit_cli.scaffold import origin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECORD = ".lpkit-template.json"
NEEDED = ("project_name", "package_name", "class_name", "style")


@dataclass(frozen=True)
class Record:
    """The version of the template, and its variables."""

    version: str
    answers: dict[str, Any]

    def examples(self) -> dict[str, str]:
        """The files that begin with the example rule, and the heading that ends it; "" for whole files.

        A wrapped processor brings its own rule.
        """
        if self.answers["style"] == "wrap":
            return {}
        processor = f"src/{self.answers['package_name']}/processor.py"
        return {processor: "", "tests/test_behaviour.py": "", "README.md": "\n## Install"}


def read(project: Path) -> Record:
    """What the project in this folder was baked with.

    Raises:
        ProjectError: it was not made by ``lpkit new``, or its record is damaged.
    """
    path = project / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version, answers = str(found["template_version"]), {str(key): value for key, value in found["answers"].items()}
        missing = [key for key in NEEDED if not isinstance(answers.get(key), str)]
    except FileNotFoundError:
        raise ProjectError(f"there is no {RECORD} in {project}", "run it in a project of lpkit new") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProjectError(
            f"{path} cannot be read ({type(error).__name__})", "restore it from an earlier commit"
        ) from None
    if missing:
        raise ProjectError(f"{path} has no answer for {missing[0]}", "restore it from an earlier commit")
    return Record(version, {**_deduced(project, answers), **answers})


def _deduced(project: Path, answers: dict[str, Any]) -> dict[str, Any]:
    """What 0.1.0 did not record, read off the project: answers that its author has changed since are as good."""
    settings = _text(project / "pyproject.toml")
    wheels = (project / origin.WHEELHOUSE).is_dir()
    found: dict[str, Any] = {"lpkit_from": origin.WHEELHOUSE if wheels else origin.INDEX, **_published(settings)}
    if answers["style"] == "wrap":
        processor = _text(project / "src" / answers["package_name"] / "processor.py")
        found |= _readme(_text(project / "README.md")) | _wrapped(processor, answers) | _cases(settings)
        required = re.search(r'^dependencies = \["([^"]+)", "torch"', settings, re.M)
        found["_requirement"] = required[1] if required else ""
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _published(settings: str) -> dict[str, str]:
    try:
        table = tomllib.loads(settings).get("project", {})
        author = (table.get("authors") or [{}])[0]
        urls = {str(key).lower(): str(value) for key, value in table.get("urls", {}).items()}
        found = {
            "description": str(table.get("description", "")),
            "author": str(author.get("name", "")),
            "email": str(author.get("email", "")),
            "repository": urls.get("repository") or urls.get("source") or urls.get("homepage") or "",
        }
    except (ValueError, AttributeError, TypeError, IndexError):
        return {}
    return {key: value for key, value in found.items() if value}


def _wrapped(processor: str, answers: dict[str, Any]) -> dict[str, Any]:
    module, _, name = str(answers.get("wraps", "")).partition(":")
    bridged = re.search(r"lpkit\.bridge\(([\w.]+)(, keys=)?", processor)
    wraps = re.search(r"^    wraps = ([\w.]+)$", processor, re.M)
    imported = re.search(rf"^from {re.escape(module)} import (?:\(\n[^)]*\)|.+)$", processor, re.M)
    kind = "class" if bridged is None else "callable" if bridged[2] else "factory"
    target = wraps or bridged
    keys = re.search(r"^    # keys = \((.*)\)$", processor, re.M)
    return {
        **({"_wrap_keys": keys[1]} if keys else {}),
        "_wrap_kind": kind,
        "_wrap_import": imported[0] if imported else f"from {module} import {name.partition('.')[0]}",
        "_wrapped_name": target[1] if target else name,
    }


def _cases(settings: str) -> dict[str, Any]:
    found = re.search(r"^cases = \[\n(.*?)\n\]$", settings, re.M | re.S)
    guessed = "# Guessed from the source" in settings or "# The source of what is wrapped does not" in settings
    return {"_cases_are_guessed": guessed, **({"_cases": found[1]} if found else {})}


def _readme(readme: str) -> dict[str, str]:
    as_json = re.search(r'^  "vllm_xargs": (\{.*\})$', readme, re.M)
    as_python = re.search(r"SamplingParams\(extra_args=(\{.*\})\)\)$", readme, re.M)
    listed = re.search(r": its module reads ((?:`\w+`(?:, )?)+)", readme)
    keys = ", ".join(f'"{key}"' for key in re.findall(r"`(\w+)`", listed[1])) if listed else ""
    found = {"_example_json": as_json, "_example_python": as_python}
    return {"_wrap_keys": f"{keys}," if keys.count('"') == 2 else keys} | {
        key: match[1] for key, match in found.items() if match
    }
