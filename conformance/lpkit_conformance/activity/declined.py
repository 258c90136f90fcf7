"""Exceptions and answers of an author's ``admit``; the SDK logs an exception and treats it as a refusal."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from unittest import mock

from lpkit.portable import admission

from lpkit_conformance.errors import StandinError
from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.instruments.author_lines import location_of
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.results import Blocked
from lpkit_conformance.subject.subject import Subject


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


def admitted(subject: Subject) -> tuple[BaseException | None, list[object]]:
    """Admit a request of the case; return the exception that kept it out, if any, and what ``admit`` returned."""
    given: list[object] = []
    with subject.as_imported(), watched(anyones=True) as errors, answers(subject.plugin.cls, given):
        try:
            drive(subject).begin(entering=[make_active(subject, Arrive("declined", 0)).request])
        except PluginError as error:
            errors.append(error)
        except (Blocked, StandinError):
            pass  # the checks report it
    return next(iter(errors), None), given


def fails(subject: Subject) -> bool:
    """Return True if no request of the case can get in: ``admit`` returns nothing, or raises.

    A ``ValueError`` may decline these arguments on purpose.
    """
    error, given = admitted(subject)
    if error is not None:
        return not isinstance(error, ValueError)
    return None in given and _returns_nothing(subject.plugin.cls.admit)


def _returns_nothing(method: Any) -> bool:
    with suppress(OSError, TypeError, SyntaxError):
        nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method))))
        returns = {ast.unparse(node) for node in nodes if isinstance(node, ast.Return)}
        return returns <= {"return", "return None"}
    return False
