"""LP1: an exception of a plugin stops the engine for all requests."""

from __future__ import annotations

from lpkit_conformance.checks.base import EVERY_METHOD, Check
from lpkit_conformance.checks.ladder import everyday
from lpkit_conformance.checks.lazily import Subject, verify


class LP109(Check):
    """No method raises an exception or hangs in everyday steps.

    Requests with and without the plugin arrive, get tokens and leave, in mixed batches and in batches of a single kind.
    Exceptions that need rarer events are reported by the checks about those events.

    Why: vLLM catches no exception of a logits processor. The first one stops the engine and fails every request on it.

    Fix: correct the line where it is raised. Often this line assumes a dictionary key, an argument or a row. Requests
    without your arguments pass through it as well.
    """

    code, name, requires, own_exceptions = "LP109", "raises-nothing", ("LP101",), EVERY_METHOD

    def run(self, subject: Subject) -> str | None:
        verify.survive(subject, everyday())
        return None
