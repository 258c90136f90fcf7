"""Findings about a plugin from the end of an engine, or of its process."""

from __future__ import annotations

import re

from lpkit_conformance.checks.lp9_engine import LP901
from lpkit_conformance.engine.process import ProcessLost
from lpkit_conformance.engine.tiny import EngineError
from lpkit_conformance.instruments.author_lines import is_authors, location_in
from lpkit_conformance.results import TargetResult
from lpkit_conformance.suite.load_failures import LoadFailure

FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+)')


def short(error: EngineError, most: int = 300) -> str:
    """The error's message in one line."""
    return " ".join(str(error).split())[:most]


def location(error: EngineError) -> str:
    """``file:line`` of the author's where the plugin raised, hung or ended the process."""
    if isinstance(error, ProcessLost):
        return location_in(error.loss.stacks)
    frames = [(match["file"], match["line"]) for match in FRAME.finditer(getattr(error, "details", ""))]
    return next((f"{file}:{line}" for file, line in reversed(frames) if is_authors(file)), "")


def load_failure(error: EngineError) -> LoadFailure:
    """The failure of a plugin whose import ended the process, or raised what ``child.survey`` does not explain."""
    return LoadFailure(f"the plugin could not be loaded: {short(error)}", location=location(error))


def unloadable(target: str, failure: LoadFailure, judged_with: str) -> TargetResult:
    """The result for a plugin that ``child.survey`` could not load."""
    if failure.broken:
        return TargetResult(target, (), (failure.result(LP901.code, LP901.name),), "", judged_with)
    return TargetResult(target, (), (), "", judged_with, str(failure))
