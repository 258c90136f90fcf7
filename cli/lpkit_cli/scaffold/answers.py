"""Reads the record that ``lpkit new`` leaves in a project: the template's version, and its variables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpkit_conformance.errors import ProjectError

RECORD = ".lpkit-template.json"
NEEDED = ("project_name", "package_name", "class_name", "style")


@dataclass(frozen=True)
class Record:
    """Version of the template, and its variables."""

    version: str
    answers: dict[str, Any]

    def examples(self) -> dict[str, str]:
        """Return the files that begin with the example rule, and the heading that ends it; "" for whole files.

        A wrapped processor has its own rule.
        """
        if self.answers["style"] == "wrap":
            return {}
        processor = f"src/{self.answers['package_name']}/processor.py"
        return {processor: "", "tests/test_behaviour.py": "", "README.md": "\n## Install"}


def read(project: Path) -> Record:
    """Return the record of the project in this folder.

    Raises:
        ProjectError: the project was not made by ``lpkit new``, or its record is damaged.
    """
    path = project / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        version, answers = (
            str(record["template_version"]),
            {str(key): value for key, value in record["answers"].items()},
        )
        missing = [key for key in NEEDED if not isinstance(answers.get(key), str)]
    except FileNotFoundError:
        raise ProjectError(f"there is no {RECORD} in {project}", "run it in a project of lpkit new") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProjectError(
            f"{path} cannot be read ({type(error).__name__})", "restore it from an earlier commit"
        ) from None
    if missing:
        raise ProjectError(f"{path} has no answer for {missing[0]}", "restore it from an earlier commit")
    return Record(version, answers)
