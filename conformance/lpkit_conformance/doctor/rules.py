"""Rules that a request can meet twice: in its document and in a plugin of the same rule, or in vLLM itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import lpkit

from lpkit_conformance.discovery.installed import DiscoveredPlugin
from lpkit_conformance.doctor.issue import Issue
from lpkit_conformance.doctor.serving import environment_of
from lpkit_conformance.doctor.situation import Situation

if TYPE_CHECKING:
    from lpkit.rules.policy import Policy

VARIABLE = "LPKIT_RULES"
PLUGIN = "lpkit_rules"
MODULES = frozenset(file.stem for file in (Path(lpkit.__file__).parent / "rules").glob("[a-z]*.py"))
"""Modules of :mod:`lpkit.rules`; the plugin of a rule is the package ``lpkit_`` and its module."""

BUILT_IN = {
    "allow": "allowed_token_ids",
    "ban": "bad_words",
    "bias": "logit_bias",
    "end": "min_tokens",
    "min_p": "min_p",
    "penalties": "repetition_penalty, presence_penalty and frequency_penalty",
    "thinking_budget": "thinking_token_budget",
}
"""Rules of documents that vLLM has, too, and the parameters of a request for them."""


def rules(situation: Situation) -> Iterator[Issue]:
    """Yield what is wrong with the operator's file of rules, and rules that a request can meet twice."""
    packages = {_package(plugin): plugin for plugin in situation.installed + situation.passed}
    if PLUGIN not in packages or not situation.choice.loads or situation.choice.refusal or situation.left_out:
        return
    name, policy, met = packages[PLUGIN].name, None, MODULES
    if path := environment_of(situation.serving).get(VARIABLE):
        from lpkit.rules.document import RULES
        from lpkit.rules.policy import Policy, PolicyError

        try:
            policy = Policy.load(path)
        except PolicyError as error:
            remedy = f"lpkit rules check {path}"
            yield Issue("blocks-start", "error", f"{situation.label} does not start", str(error), remedy, name)
            return
        met = frozenset(RULES[rule].processor.__module__.rpartition(".")[2] for rule in policy.rules)
    for package, plugin in packages.items():
        rule = package.removeprefix("lpkit_")
        if rule in met and package != rule:
            yield Issue(
                "rule-twice",
                "note",
                f"a request that asks for its rule here and in a document of {name} gets it twice",
                f"Both are lpkit.rules.{rule}, and neither looks at the other's parameters.",
                f"pip uninstall {plugin.distribution}, or leave the rule out of `allow` in the file of {VARIABLE}",
                plugin.name,
            )
    if policy is not None:
        yield from _built_in(policy, name)


def _built_in(policy: Policy, name: str) -> Iterator[Issue]:
    always = {step.rule: step.place for part in ("first", "last") for step in policy.operators[part]}
    for rule, place in always.items():
        if rule in BUILT_IN:
            yield Issue(
                "rule-built-in",
                "note",
                f"every request gets {rule} from the operator's file; one that sets {BUILT_IN[rule]} gets both",
                f"{place} in the file of {VARIABLE}; vLLM applies its own parameters, too.",
                "Tell clients, or leave the step out",
                name,
            )


def _package(plugin: DiscoveredPlugin) -> str:
    return (plugin.defined or plugin.target).partition(":")[0].partition(".")[0]
