"""The text of ``lpkit explain``."""

from __future__ import annotations

from collections.abc import Iterator

from lpkit_conformance.checks import examples
from lpkit_conformance.checks.base import Rule
from lpkit_conformance.checks.catalogue import FAMILIES, all_checks, turning_off
from lpkit_conformance.settings.hosts import in_words

ONLY_WITH = {"vllm": "--engine vllm", "together": "--together"}
"""The option that runs the checks of an engine other than the reference runtime."""


def index() -> Iterator[str]:
    """Every check, a line each, by family."""
    for family, title in FAMILIES.items():
        yield from ("", f"{family}  {title}")
        for check in all_checks(None):
            if check.code.startswith(family):
                hosts = "/".join(check.hosts) or "-"
                advice = "  (advice)" if check.tier == "advice" else ""
                yield f"  {check.code}  {hosts:12}  {check.name:26} {check.title()}{advice}"


def lines(check: type[Rule]) -> Iterator[str]:
    """The rule of one check, why it matters, how to fix a failure, and the defects that ignoring it hides."""
    sections = check.sections()
    hosts = f" on {in_words(check.hosts)}" if check.hosts else ""
    yield from (f"{check.code} {check.name} ({check.tier}{hosts})", "", f"{sections['title']}.", "")
    yield from (f"rule  {sections['rule']}", f"why   {sections['why']}", f"fix   {sections['fix']}")
    yield from (f"sdk   {reason}" for reason in prevented(check))
    if check.requires:
        yield f"needs {', '.join(check.requires)}"
    yield f"off   {turning_off(check)}"
    yield from (f"note  {note}" for note in notes(check))
    yield ""
    for example in examples.examples_of(check.code):
        yield from (f"From wrong to right, on {example.bases}:", "", *example.diff.splitlines(), "")


def prevented(check: type[Rule]) -> Iterator[str]:
    """Explain how lpkit's base classes prevent the mistake, if they do."""
    if check.prevented:
        yield f"With lpkit's base classes this cannot happen: {check.prevented}"


def notes(check: type[Rule]) -> Iterator[str]:
    """Conditions under which the check runs, and under which it is skipped."""
    if check.engine != "reference":
        yield f"Runs with `lpkit check {ONLY_WITH[check.engine]}` only."
    if check.needs_action:
        yield "A run in which the plugin never changes a logit is skipped, not passed."
