"""Base classes of checks. A check is a class named by its code; its docstring is its documentation."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from lpkit_conformance.results import Blocked, CheckResult, Failed, NeverActive, Skipped
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.vllm_api.releases import Release

if TYPE_CHECKING:
    from lpkit_conformance.subject.subject import Subject

Tier = Literal["core", "advice"]
Engine = Literal["reference", "vllm", "together"]

STATE = {row.name: row.told_by for row in HOSTS.values()}
"""The method that gets new requests, by host."""

EVERY_METHOD = ("__init__", "is_argmax_invariant", *STATE.values(), "apply_staged_writes", "apply")


class Rule(ABC):
    """A requirement on plugins, and its metadata.

    The docstring of a subclass has, separated by blank lines: a title, the rule, and paragraphs that begin with
    ``Why:`` and ``Fix:``. Codes are never renumbered or reused.

    Attributes:
        code: ``LPnnn``.
        name: short, kebab-case.
        hosts: names of the table; empty for a check that needs no host.
        requires: codes that must pass first (on the same host, or without a host); by default the checks without which
            no other check can say anything.
        tier: ``advice`` does not fail a plugin, except for an exception that an engine without ``option`` meets.
        option: the engine's option without which the rule cannot be broken, such as ``--enable-prompt-embeds``.
        engine: the engine of its runs: the reference runtime, a real vLLM (``lpkit check --engine vllm``), or the
            reference runtime with two plugins (``lpkit check --together``).
        needs_action: True if a run in which the plugin never changed a logit proves nothing.
        as_given: True if it judges the cases as given; the other checks use cases that make the plugin act.
        once: True if the first case is sufficient.
        compares_processes: True if it compares two ranks: the second child of a run can be the second rank.
        method: the method that an author should look at when the rule is broken; may depend on the host.
        own_exceptions: methods whose exceptions break this very rule, so that its fix helps. An exception of another
            method gets general advice.
        quick: how ``lpkit check --quick`` runs it: with the first case, with each case, or not at all (empty).
        suspects: codes of checks that report the cause of its failures if they fail, too, unless the experiments prove
            another state to be at fault.
        since: the first vLLM release that makes the calls in question; None: all supported releases.
        replays: True if it judges a given trace or given requests (``lpkit check --trace``).
        judges_processes: True if it reports the processes that the plugin leaves running.
        prevented: why lpkit's base classes cannot break the rule, unless a class overrides what the engine calls.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    hosts: ClassVar[tuple[str, ...]] = tuple(HOSTS)
    requires: ClassVar[tuple[str, ...]] = ("LP001", "LP101")
    tier: ClassVar[Tier] = "core"
    option: ClassVar[str] = ""
    engine: ClassVar[Engine] = "reference"
    needs_action: ClassVar[bool] = False
    as_given: ClassVar[bool] = False
    once: ClassVar[bool] = False
    compares_processes: ClassVar[bool] = False
    method: ClassVar[str | Mapping[str, str]] = "apply"
    own_exceptions: ClassVar[tuple[str, ...]] = ()
    quick: ClassVar[Literal["", "first", "each"]] = ""
    suspects: ClassVar[tuple[str, ...]] = ()
    since: ClassVar[Release | None] = None
    replays: ClassVar[bool] = False
    judges_processes: ClassVar[bool] = False
    prevented: ClassVar[str] = ""

    @classmethod
    def title(cls) -> str:
        """Return the rule as one sentence, without its full stop."""
        return cls.sections()["title"]

    @classmethod
    def sections(cls) -> dict[str, str]:
        """Parse ``title``, ``rule``, ``why`` and ``fix`` from the docstring."""
        text = inspect.cleandoc(cls.__doc__ or "").replace("``", "`")
        paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
        texts = {"title": paragraphs[0].rstrip("."), "rule": "", "why": "", "fix": ""}
        for paragraph in paragraphs[1:]:
            label, _, text = paragraph.partition(": ")
            key = label.lower() if label in ("Why", "Fix") else "rule"
            texts[key] = f"{texts[key]} {text if key != 'rule' else paragraph}".strip()
        return texts


class Check(Rule):
    """A rule that is judged on the reference runtime."""

    @abstractmethod
    def run(self, subject: Subject) -> str | None:
        """Raise ``Failed`` or ``Skipped`` (of ``results``); return a note for the report, or None.

        A finding without a fix or a location gets the docstring's fix and the location of ``method``. An exception of
        the plugin becomes a finding.
        """


def judge(
    check: type[Rule], host: str, run: Callable[[], str | None], location: Callable[[], str] = lambda: ""
) -> CheckResult:
    """Return the result of a check from its function ``run``.

    Args:
        location: ``file:line`` for a finding without a location.
    """
    result = partial(CheckResult, check.code, check.name, host)
    try:
        return result("passed", run() or "")
    except Skipped as reason:
        return result("skipped", str(reason), never_active=isinstance(reason, NeverActive))
    except Blocked as root:
        return result("blocked", str(root))
    except Failed as failure:
        finding = failure.finding
        finding = replace(finding, fix=finding.fix or check.sections()["fix"], location=finding.location or location())
        if check.option:
            finding = replace(finding, where={**finding.where, "needs": check.option})
        mild = failure.advice
        if mild is None:
            mild = check.tier == "advice" and bool(check.option or not finding.exception)
        return result("advice" if mild else "failed", finding.summary, finding)
