"""Exceptions and answers of an author's ``admit``; the SDK logs an exception and treats it as a refusal."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import lpkit
from lpkit.portable import admission

from lpkit_conformance.instruments.author_lines import location_of


@contextmanager
def watched(anyones: bool = False) -> Iterator[list[BaseException]]:
    """Collect the exceptions that made the SDK decline a request: of an author's line or of a column, or any."""
    writes = lpkit.LogitsProcessor.admit.__code__
    found: list[BaseException] = []

    def note(*_: Any, **__: Any) -> None:
        error = sys.exc_info()[1]
        frames = traceback.walk_tb(None if error is None else error.__traceback__)
        if error is not None and (anyones or location_of(error) or any(frame.f_code is writes for frame, _ in frames)):
            found.append(error)

    with mock.patch.multiple(admission.logger, exception=note, warning=note):
        yield found


@contextmanager
def answers(cls: Any, found: list[object]) -> Iterator[None]:
    """Collect what the author's ``admit`` returns within the context."""
    admit = getattr(cls, "admit", None)
    if admit is None:
        yield
        return

    def noted(self: Any, request: Any) -> object:
        answer = admit(self, request)
        found.append(answer)
        return answer

    with mock.patch.object(cls, "admit", noted):
        yield
