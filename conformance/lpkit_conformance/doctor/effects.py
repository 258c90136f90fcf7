"""Predicts the effect of an engine on each plugin, from static facts; one function per problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from lpkit_conformance.discovery import runner_choice
from lpkit_conformance.discovery.installed import DiscoveredPlugin
from lpkit_conformance.doctor.features import front_end, own_sampler, replayed, suffix, verification
from lpkit_conformance.doctor.issue import Issue
from lpkit_conformance.doctor.rules import rules
from lpkit_conformance.doctor.serving import environment_of
from lpkit_conformance.doctor.situation import Situation
from lpkit_conformance.vllm_api import releases
from lpkit_conformance.vllm_api.facts import in_full, in_short
from lpkit_conformance.vllm_api.releases import is_before
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

Effect: TypeAlias = Literal["starts", "blocks", "inactive", "unknown"]

_DEPRECATED = releases.V1_DEPRECATED_SINCE
_ON_V2 = f"{in_short(releases.V2_PROCESSORS_SINCE)} or newer"
"""The releases whose V2 runner loads custom processors."""
_PORTABLE = "derive the class from lpkit.LogitsProcessor, which runs on both runners"
_REPLACED = dict.fromkeys(
    (f"vllm.model_executor.models.{model}:NGramPerReqLogitsProcessor" for model in ("deepseek_ocr", "unlimited_ocr")),
    "lpkit-ocr-ngram (lpkit_ocr_ngram.processor:OcrNgram)",
)
_INTERFACES = {V1: "V1", V2: "V2", "both": "V1 and V2", "unknown": "unknown"}


def effect(plugin: DiscoveredPlugin, situation: Situation, *, passed: bool = False) -> Effect:
    """Return in one word what happens to ``plugin``."""
    if situation.choice.refusal:
        return "blocks"
    if not situation.choice.loads:
        return "inactive"
    if situation.left_out:
        return "blocks" if passed else "inactive"
    starts = plugin.starts(situation.runner)
    return "unknown" if starts is None else "starts" if starts else "blocks"


def judge(situation: Situation) -> list[Issue]:
    """Return all certain and possible problems."""
    issues = [*_engine(situation), *suffix(situation), *own_sampler(situation), *front_end(situation)]
    for passed, plugins in ((False, situation.installed), (True, situation.passed)):
        for plugin in plugins:
            issues += _starting(plugin, situation, passed)
            issues += _drafts(plugin, situation, passed)
            if not passed:
                issues += _placeholders(plugin, situation)
                issues += _elsewhere(plugin, situation)
            issues += replayed(plugin, situation, passed)
    return issues + [*_twice(situation), *verification(situation), *rules(situation)]


def _engine(situation: Situation) -> Iterator[Issue]:
    choice = situation.choice
    processors = situation.installed or situation.passed
    if choice.refusal and (processors or choice.forced):
        yield Issue(
            "engine-refuses",
            "error",
            f"{situation.label} does not start{'' if choice.forced else ' with a custom processor'}",
            choice.refusal,
            _refusal_remedy(situation),
        )
    if choice.refusal or not processors:
        return
    if situation.runner == V1 and (choice.forced or choice.by_switch) and not is_before(situation.release, _DEPRECATED):
        yield Issue(
            "v1-deprecated",
            "note",
            f"{situation.label} serves on its V1 runner, which is deprecated since {in_short(_DEPRECATED)}",
            f"{choice.reason[:1].upper()}{choice.reason[1:]}.",
            "Plan for the V2 runner: a portable class runs on both",
        )
    if not choice.loads:
        yield Issue(
            "not-loaded",
            "error",
            f"{situation.label} loads no custom processor: requests are served as if there were none",
            choice.reason,
            _loading_remedy(situation),
        )
    elif choice.moved:
        models = "some models" if is_before(situation.release, releases.V2_DEFAULT_SINCE) else "all models"
        yield Issue(
            "moves-to-v1",
            "note",
            f"{situation.label} serves on its V1 runner because of a custom processor",
            f"This release uses V2 for {models} by default, and goes back to V1 for any custom processor, with one "
            "line in its log.",
            f"vLLM {_ON_V2} runs portable processors on V2",
        )


def _refusal_remedy(situation: Situation) -> str:
    if runner_choice.SWITCH in environment_of(situation.serving):
        return f"Unset {runner_choice.SWITCH}"
    if situation.serving.pooling:
        return "Do not pass processors"
    features = " and ".join(_only_on_v2(situation)) or situation.choice.reason
    if situation.choice.moved:
        return f"Use vLLM {_ON_V2}, whose V2 runner loads processors, or leave out {features}"
    return f"Leave out {features}"


def _only_on_v2(situation: Situation) -> Sequence[str]:
    return situation.serving.demands(situation.release).only_v2


def _loading_remedy(situation: Situation) -> str:
    if situation.serving.pooling:
        return f"Leave out {situation.serving.pooling}, if requests shall use processors"
    if situation.runner == V2:
        return f"Unset {runner_choice.SWITCH}"
    old = is_before(situation.release, releases.PLUGINS_SINCE)
    return f"Use vLLM {in_full(releases.OLDEST_SUPPORTED)} or newer" if old else "Serve on another kind of device"


def _starting(plugin: DiscoveredPlugin, situation: Situation, passed: bool) -> Iterator[Issue]:
    if situation.choice.refusal or not situation.choice.loads:
        return
    if situation.left_out:
        if not passed:
            yield from _requests(plugin, situation)
        return
    starts = plugin.starts(situation.runner)
    if starts:
        return
    where = f"{situation.label} on its {situation.runner.upper()} runner"
    if starts is None:
        evidence = plugin.note or plugin.problem
        remedy = "lpkit doctor --load imports it in a separate process to find out"
        yield Issue("may-block", "note", f"{where} may not start with it", evidence, remedy, plugin.name)
        return
    yield Issue(
        "blocks-start",
        "error",
        f"{where} does not start",
        _why_blocked(plugin, situation.runner),
        _unblock(plugin, situation, passed),
        plugin.name,
    )


def _requests(plugin: DiscoveredPlugin, situation: Situation) -> Iterator[Issue]:
    """V1 does not build the plugin, but imports it to validate requests."""
    broken = plugin.starts_v1 is False and plugin.interface == "unknown"
    if broken and not is_before(situation.release, releases.VALIDATED_SINCE):
        yield Issue(
            "fails-requests",
            "error",
            f"{situation.label} starts, and fails every request",
            f"Plugins are imported to validate parameters, even if they are left out: {plugin.problem}.",
            f"pip uninstall {plugin.distribution}, or repair what is broken",
            plugin.name,
        )


def _why_blocked(plugin: DiscoveredPlugin, runner: Runner) -> str:
    if plugin.interface in (V1, V2):
        how = "refuses it" if runner == V2 else "ends in a TypeError when it constructs the class"
        only = f"{plugin.target} implements only the {_INTERFACES[plugin.interface]} interface"
        return f"{only}; the {runner.upper()} runner {how}."
    return plugin.problem


def _unblock(plugin: DiscoveredPlugin, situation: Situation, passed: bool) -> str:
    ways = ["Do not pass it"] if passed else [f"pip uninstall {plugin.distribution}"]
    if plugin.interface == V1:
        if plugin.target in _REPLACED:
            ways.append(f"use {_REPLACED[plugin.target]}, which takes the same arguments on both runners")
        ways.append(f"wrap it for both runners: lpkit new my-proc --wrap {plugin.target}")
        ways.append(_PORTABLE)
        if not situation.choice.forced and not _only_on_v2(situation):
            ways.append(f"run vLLM with {runner_choice.SWITCH}=0")
    elif plugin.interface == V2:
        ways.append(_PORTABLE)
    else:
        ways.append("repair what is broken")
    return ", or ".join(ways)


def _drafts(plugin: DiscoveredPlugin, situation: Situation, passed: bool) -> Iterator[Issue]:
    """V1 with speculative decoding: it omits installed processors without an error, and refuses passed processors."""
    if situation.runner != V1 or situation.choice.refusal or not situation.choice.loads:
        return
    remedy = f"Turn speculative decoding off, or use the V2 runner of vLLM {_ON_V2}, which keeps processors"
    evidence = "The V1 runner builds no custom processors when speculative decoding is on."
    if is_before(situation.release, releases.DRAFTS_REFUSED_SINCE):
        code, effect = "bypassed-by-drafts", "accepts drafted tokens that it never saw"
        since = in_short(releases.DRAFTS_REFUSED_SINCE)
        evidence = f"Before {since} the V1 runner applies processors to the last token of a step only, not to drafts."
    elif passed:
        code, effect = "draft-refusal", "does not start with it"
    else:
        code, effect = "inactive-with-drafts", "silently serves without it"
    if situation.serving.drafts:
        yield Issue(code, "error", f"{situation.label} {effect}", evidence, remedy, plugin.name)
    elif plugin.starts(situation.runner) and not passed:
        problem = f"with speculative decoding, {situation.label} {effect}"
        yield Issue(code, "note", problem, f"{evidence} --spec-decode judges that.", remedy, plugin.name)


def _placeholders(plugin: DiscoveredPlugin, situation: Situation) -> Iterator[Issue]:
    if not (situation.placeholders and plugin.starts(situation.runner)) or plugin.reads in ("none", "length"):
        return
    certain = plugin.reads == "tokens"
    effect = "reads -1 instead of generated tokens" if certain else "reads -1 instead of tokens, if it reads them"
    portable = plugin.interface == "both"
    if portable and certain:
        effect = "does nothing: the tokens that it needs are placeholders"
    yield Issue(
        "placeholders",
        "error" if certain else "note",
        effect,
        "With asynchronous scheduling, the default, the V1 runner replaces its placeholders in output lists only if "
        "a processor is passed; this one is installed"
        + (" and reads token ids." if certain else ", and its source does not show what it reads."),
        f"Start vLLM with --no-async-scheduling, or uninstall {plugin.distribution} and pass a copy on the path: "
        f"--logits-processors {plugin.target}" + (f", or use the V2 runner of vLLM {_ON_V2}" if portable else ""),
        plugin.name,
    )


def _elsewhere(plugin: DiscoveredPlugin, situation: Situation) -> Iterator[Issue]:
    """The plugin starts here on V1, and would not start on a default vLLM."""
    if situation.runner == V1 and plugin.starts(situation.runner) and plugin.starts_v2 is False:
        yield Issue(
            "blocks-default",
            "note",
            f"a default vLLM, {_ON_V2} on a GPU, does not start while it is installed",
            _why_blocked(plugin, V2),
            _PORTABLE[:1].upper() + _PORTABLE[1:],
            plugin.name,
        )


def _twice(situation: Situation) -> Iterator[Issue]:
    """vLLM loads a class once for each entry point, and once each time that it is passed."""
    if not situation.choice.loads or situation.choice.refusal:
        return
    counts = Counter(_identity(plugin) for plugin in situation.installed + situation.passed)
    for identity, times in counts.items():
        if times < 2:
            continue
        installed = [plugin for plugin in situation.installed if _identity(plugin) == identity]
        ways = [f"entry point {plugin.name} of {plugin.distribution}" for plugin in installed]
        ways += [f"passed as {plugin.target}" for plugin in situation.passed if _identity(plugin) == identity]
        remedy = "Leave one of these entry points, or uninstall one of the distributions"
        if len(ways) > len(installed):
            remedy = "Do not pass what is installed" if installed else "Pass it once"
        yield Issue(
            "runs-twice",
            "error",
            f"{identity} runs {times} times for every token",
            f"vLLM removes no duplicates: {'; '.join(ways)}.",
            remedy,
            installed[0].name if installed else identity,
        )


def _identity(plugin: DiscoveredPlugin) -> str:
    return plugin.defined or plugin.target
