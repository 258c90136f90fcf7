"""The request that the user asks for: its model, its processors, its parameters and its prompt."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from lpkit.loading import LoadError, resolve_target
from lpkit.rules.chain import Rules
from lpkit.rules.document import RULES, DocumentStep
from lpkit.rules.policy import Policy
from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams

from lpkit_conformance.errors import CaseError, UsageError
from lpkit_conformance.settings.cases import Case, knows_field
from lpkit_conformance.settings.derived import derived_cases
from lpkit_conformance.settings.hosts import RUNNER_HOSTS, hosts_of
from lpkit_conformance.show.model import load
from lpkit_conformance.show.playing import SAMPLING, Processor, ShownRequest
from lpkit_conformance.subject.plugin import Plugin
from lpkit_conformance.suite.load_failures import load_failure


def asked(job: dict[str, Any], standin: bool) -> ShownRequest:
    """Return the request of a job of :mod:`.run`.

    Args:
        standin: True if the stand-in replaces vLLM's modules.

    Raises:
        UsageError, CaseError: the request cannot run.
    """
    model = load(job["model"])
    plugins = [_plugin(item, standin) for item in job["targets"]]
    given = Case.parse(job["case"]) if job["case"] else _shared_case(plugins, job["targets"], job["like"])
    text, fields, extra = _changed(job["rules"], given, job["change"])
    extra = {**extra, **({"rules": text} if text else {})}
    fields = {"seed": job["seed"], **fields, "max_tokens": job["steps"], "extra_args": extra or None}
    case = Case(fields, given.prompt_token_ids)
    host = _host(job["host"], plugins)
    prompt = job["prompt"] or ("" if case.prompt_token_ids else model.prompt)
    ids = [*(model.encode(prompt) if prompt else ()), *case.prompt_token_ids]
    for plugin in plugins:
        if (refusal := plugin.refusal(case.params())) is not None:
            raise CaseError(f"{plugin.target} refuses the request {case.text}: {refusal}"[:500])
    processors = [Processor(plugin.target, plugin.cls) for plugin in plugins]
    return ShownRequest(host, model, case, ids, [*(_steps(text, case.params()) if text else ()), *processors])


def _plugin(item: dict[str, Any], standin: bool) -> Plugin:
    try:
        return Plugin(item["name"], resolve_target(item["spec"]))
    except LoadError as error:
        raise UsageError(str(load_failure(item["spec"], error, standin))) from None


def _shared_case(plugins: Sequence[Plugin], targets: Sequence[dict[str, Any]], like: str) -> Case:
    """Return one case for all processors: each project's first one, or what a class's parameters suggest.

    Args:
        like: a case whose values replace the projects' values, or empty.
    """
    cases_by_plugin = [
        [Case.parse(item["case"])] if item["case"] else derived_cases(plugin.cls, plugin.accepts)[:1]
        for plugin, item in zip(plugins, targets, strict=True)
    ]
    shared = Case()
    for case in (*(case for cases in cases_by_plugin for case in cases), *([Case.parse(like)] if like else [])):
        extra = {**(shared.fields.get("extra_args") or {}), **(case.fields.get("extra_args") or {})}
        fields = {**shared.fields, **case.fields, "extra_args": extra}
        shared = Case(fields, case.prompt_token_ids or shared.prompt_token_ids)
    return shared


def _changed(rules: str, case: Case, change: Sequence[Any] | None) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return document, fields and processors' arguments with one value changed, as :class:`.run.ShowOptions` says."""
    fields, extra = dict(case.fields), dict(case.fields.get("extra_args") or {})
    if change is None:
        return rules, fields, extra
    name, value = change
    step, dot, parameter = name.partition(".")
    if dot:
        try:
            document = json.loads(rules)
            document[int(step)][parameter] = value
        except (ValueError, LookupError, TypeError):
            raise UsageError(f"{name}: the document of --rules has no step {step!r}") from None
        return json.dumps(document), fields, extra
    (fields if knows_field(name) else extra)[name] = value
    return rules, fields, extra


def _host(asked: str, plugins: Sequence[Plugin]) -> str:
    """Return the runner that was asked for, or the newest one whose interface all classes have."""
    shared = set(RUNNER_HOSTS).intersection(*(hosts_of(plugin.interfaces) for plugin in plugins))
    wanted = [host for host in RUNNER_HOSTS if host in shared and asked in ("", host)]
    if not wanted:
        each = ", ".join(f"{plugin.target} has {' and '.join(sorted(plugin.interfaces))}" for plugin in plugins)
        raise UsageError(f"{asked.upper() or 'no single runner'} cannot load all of them: {each}")
    return wanted[-1]


def _steps(text: str, params: SamplingParams) -> list[Processor]:
    """Return a document's steps as processors, which edit the logits as the plugin lpkit-rules does."""
    try:
        Rules.validate_params(params)
        steps = Policy.here().steps({"rules": text})
    except ValueError as error:
        raise UsageError(str(error)) from None
    return [_step(step, params.temperature < GREEDY_EPSILON) for step in steps]


def _step(step: DocumentStep, greedy: bool) -> Processor:
    skipped = greedy and RULES[step.rule].processor.stage == "sampling"

    def edit(params: SamplingParams) -> SamplingParams:
        changed = copy.copy(params)
        changed.extra_args = None if skipped else dict(step.args)
        return changed

    return Processor(f"{step.place} {step.rule}", step.lane, edit, SAMPLING if skipped else "")
