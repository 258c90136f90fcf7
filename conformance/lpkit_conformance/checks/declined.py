"""Exceptions and answers of an author's ``admit``; the SDK logs an exception and treats it as a refusal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from lpkit.portable import admission

from lpkit_conformance.instruments.author_lines import location_of


@contextmanager
def watched(anyones: bool = False) -> Iterator[list[BaseException]]:
    """Collect the exceptions that made the SDK decline a request.

    ``anyones``: those of the SDK's own validation, too, which refuses a client's arguments.
    """
    errors: list[BaseException] = []

    def note(*_: Any, validation: bool = False, **__: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and (anyones or not validation or location_of(error)):
            errors.append(error)

    with mock.patch.multiple(admission.logger, exception=note, warning=partial(note, validation=True)):
        yield errors


@contextmanager
def answers(cls: Any, given: list[object]) -> Iterator[None]:
    """Collect what the author's ``admit`` returns within the context."""
    admit = getattr(cls, "admit", None)
    if admit is None:
        yield
        return

    def noted(self: Any, request: Any) -> object:
        answer = admit(self, request)
        given.append(answer)
        return answer

    with mock.patch.object(cls, "admit", noted):
        yield
