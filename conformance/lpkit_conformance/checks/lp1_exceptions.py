"""LP1: an exception of a plugin stops the engine for all requests."""

from __future__ import annotations

from lpkit_conformance.checks.base import EVERY_METHOD, Check
from lpkit_conformance.checks.ladder import everyday
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.oracle.verify import survive


class LP109(Check):
    """No method raises an exception or hangs in everyday steps.

    Requests that use the plugin and requests that do not arrive, get tokens and leave, in batches of both kinds and
    of either kind alone. An exception that takes rarer events to come is reported by the check about these.

    Why: vLLM catches no exception of a logits processor. The first one stops the engine and fails every request on it.

    Fix: correct the line where it is raised. Often the cause is a dictionary key, an argument or a row that this line
    takes for granted: requests without your arguments pass through it as well.
    """

    code, name, requires, own_exceptions = "LP109", "raises-nothing", ("LP101",), EVERY_METHOD

    def run(self, subject: PluginUnderTest) -> str | None:
        survive(subject, everyday())
        return None
