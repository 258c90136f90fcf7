"""What the end of an engine, or of its process, says about the plugin."""

from __future__ import annotations

import re
from typing import Any

from lpkit_conformance.engine.process import ProcessLost
from lpkit_conformance.engine.tiny import EngineError
from lpkit_conformance.instruments.author_lines import is_authors, location_in
from lpkit_conformance.results import CheckResult, Finding, TargetResult

FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+)')


def short(error: EngineError, most: int = 300) -> str:
    """What it says, in one line."""
    return " ".join(str(error).split())[:most]


def location(error: EngineError) -> str:
    """``file:line`` of the author's where the plugin raised, hung or ended the process."""
    if isinstance(error, ProcessLost):
        return location_in(error.loss.stacks)
    frames = [(found["file"], found["line"]) for found in FRAME.finditer(getattr(error, "details", ""))]
    return next((f"{file}:{line}" for file, line in reversed(frames) if is_authors(file)), "")


def load_failure(error: EngineError) -> dict[str, Any]:
    """Of a plugin whose import broke, as ``engine_child.survey`` tells of one that cannot be loaded."""
    problem = f"the plugin could not be loaded: {short(error)}"
    return {"broken": True, "problem": problem, "remedy": "", "location": location(error)}


def unloadable(target: str, found: dict[str, Any]) -> TargetResult:
    """The result for a plugin that ``engine_child.survey`` could not load."""
    failure = found["failure"]
    judged_with = f"vLLM {found['version']}"
    if not failure["broken"]:
        error = ". ".join(part for part in (failure["problem"], failure["remedy"]) if part)
        return TargetResult(target, (), (), "", judged_with, error)
    finding = Finding(failure["problem"], fix=failure["remedy"], location=failure["location"])
    result = CheckResult("LP901", "engine-starts", "", "failed", failure["problem"], finding)
    return TargetResult(target, (), (result,), "", judged_with)
