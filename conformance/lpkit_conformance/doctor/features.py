"""Features of the engine that bypass processors' edits: ways to accept drafts, and replay for trainers."""

from __future__ import annotations

from collections.abc import Iterator

from lpkit_conformance.discovery.installed import DiscoveredPlugin
from lpkit_conformance.doctor.architectures import samples_by_itself
from lpkit_conformance.doctor.issue import Issue
from lpkit_conformance.doctor.serving import environment_of
from lpkit_conformance.doctor.situation import Situation
from lpkit_conformance.vllm_api.facts import VLLM, in_short
from lpkit_conformance.vllm_api.runners import V1, V2


def verification(situation: Situation) -> Iterator[Issue]:
    """Ways of accepting drafts that bypass processors' edits."""
    method = str(situation.serving.draft.get("rejection_sample_method"))
    if situation.left_out or not (situation.installed or situation.passed):
        return
    if method == "synthetic":
        yield Issue(
            "drafts-unverified",
            "error",
            f"{situation.label} accepts drafts at a fixed rate, whatever the processors say",
            "With rejection_sample_method='synthetic', tokens that a processor masks are put out.",
            "Use rejection_sample_method 'standard' or 'block'; 'synthetic' is for measuring",
        )
    elif method == "fly" and not VLLM.has("acceptance", method, situation.release):
        yield Issue(
            "engine-refuses",
            "error",
            f"{situation.label} does not start with rejection_sample_method='fly'",
            f"vLLM knows it since {in_short(VLLM.since('acceptance', method))}.",
            "Use rejection_sample_method 'standard' or 'block'",
        )
    elif method == "fly":
        yield Issue(
            "drafts-inexact",
            "error",
            f"{situation.label} keeps to what processors mask, but what they only shift is no longer exact",
            "rejection_sample_method='fly' accepts drafts that the target model would rank high enough.",
            "Use rejection_sample_method 'standard' or 'block', which keep the distribution",
        )


def suffix(situation: Situation) -> Iterator[Issue]:
    """A drafter that needs a package."""
    if situation.lacks_suffix:
        yield Issue(
            "engine-refuses",
            "error",
            f"{situation.label} does not start with speculative method 'suffix'",
            "It needs Arctic Inference, which is not installed here.",
            "pip install arctic-inference, or use another method",
        )


def own_sampler(situation: Situation) -> Iterator[Issue]:
    """A model of diffusion, whose sampler takes the place of V2's."""
    loaded = situation.choice.loads and not situation.choice.refusal and (situation.installed or situation.passed)
    if not loaded or situation.runner != V2:
        return
    architecture, option = samples_by_itself(situation.serving), "diffusion-config" in situation.serving.options
    if architecture or option:
        yield Issue(
            "sampler-replaced",
            "error",
            f"{situation.label} constructs custom processors for this model, and never applies them",
            f"{f'A {architecture}' if architecture else 'With --diffusion-config, the model'} samples by itself: "
            "requests are validated and served without them.",
            "Do not rely on custom processors for a model of diffusion",
        )


def front_end(situation: Situation) -> Iterator[Issue]:
    """A front end that validates no request."""
    set_to = environment_of(situation.serving).get("VLLM_USE_RUST_FRONTEND", "0")
    if set_to not in ("", "0") and not situation.choice.refusal and (situation.installed or situation.passed):
        yield Issue(
            "not-validated",
            "note",
            "requests reach processors without validate_params",
            f"VLLM_USE_RUST_FRONTEND={set_to}: vLLM's Rust front end does not call it.",
            "Use classes of lpkit's, which read the arguments again, or see that `lpkit check` passes LP114",
        )


def replayed(plugin: DiscoveredPlugin, situation: Situation, passed: bool) -> Iterator[Issue]:
    """Features for trainers: results that the engine returns, and settings that a trainer changes."""
    serving, choice = situation.serving, situation.choice
    if choice.refusal or not choice.loads:
        return
    masks, traces = serving.on("return-sampling-mask"), serving.on("enable-trace-replay")
    wanted = [name for name, on in (("mask", masks), ("trace", traces)) if on]
    if wanted and situation.runner == V1:
        yield Issue(
            "replay-refused",
            "error",
            f"{situation.label} does not start with {' and '.join(wanted)} replay on its V1 runner",
            f"It needs the V2 runner, and V1 is used here: {choice.reason}.",
            "Remove the option, or what keeps the engine on V1",
            plugin.name,
        )
        return
    if masks and passed:
        yield Issue(
            "replay-refused",
            "error",
            f"{situation.label} does not start with it and --return-sampling-mask",
            "Sampling masks are not returned where a processor is passed.",
            "Do not pass it, or recompute what was sampled from with lpkit.train",
            plugin.name,
        )
    elif masks:
        yield Issue(
            "mask-biased",
            "error",
            "the sampling masks that the engine returns do not tell what it did to the logits",
            "--return-sampling-mask refuses passed processors, but does not look at installed ones: a trainer that "
            "replays the mask misses what they shift.",
            f"Uninstall {plugin.distribution}, or recompute what was sampled from with lpkit.train",
            plugin.name,
        )
    if traces:
        yield Issue(
            "trace-replayed",
            "note",
            "requests with trace_decode_token_ids get the tokens of their trace, whatever it says",
            "Processors run, and the log-probabilities are theirs; then the sampled token is replaced.",
            "",
            plugin.name,
        )
