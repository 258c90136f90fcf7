"""Watches the processors of one engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lpkit_conformance.vllm_api.runners import V1, Runner
from lpkit_conformance.watch.evidence import Server
from lpkit_conformance.watch.hub import Hub, Watched
from lpkit_conformance.watch.reporter import Reporter, logger
from lpkit_conformance.watch.settings import Settings
from lpkit_conformance.watch.tally import Seen, Tally
from lpkit_conformance.watch.uses import judge, name_of
from lpkit_conformance.watch.wrap import wrap_v1, wrap_v2

RUNNER_CLASSES = {
    "v1": "vllm.v1.worker.gpu_model_runner.GPUModelRunner",
    "v2": "vllm.v1.worker.gpu.model_runner.GPUModelRunner",
}


def watch(
    runner: Runner,
    processors: Sequence[Any],
    config: Any,
    states: Any,
    settings: Settings,
    folder: Path | None,
    version: str,
) -> Tally:
    """Wrap the processors, in the order in which the engine calls them.

    Args:
        runner: the engine's.
        processors: its instances, without vLLM's own.
        config: vLLM's configuration.
        states: V2's buffers of requests.
        settings: how to watch.
        folder: of this run; None: no files are written.
        version: vLLM's.

    Returns:
        The numbers, which go on counting.
    """
    tally = Tally()
    if not processors:
        return tally
    reporter = Reporter(settings, tally, folder)
    server = Server(version, RUNNER_CLASSES[runner], _settings(config))
    hub = Hub(settings, runner, server, tally, reporter)
    leads = True  # the first that is watched tells of the steps
    for number, processor in enumerate(processors):
        name = name_of(processor)
        # A class that was loaded twice counts as one.
        watched = Watched(name, number, judge(processor, settings.arguments), tally.processors.get(name, Seen()))
        try:
            if runner == V1:
                wrap_v1(processor, hub, watched, leads)
            else:
                wrap_v2(processor, hub, watched, leads, states)
        except AttributeError as error:
            logger.warning("lpkit watch cannot watch %s, whose methods cannot be replaced: %s", name, error)
            continue
        tally.processors[name] = watched.seen
        leads = False
    reporter.start()
    logger.info("lpkit watch is on for %s; files: %s", ", ".join(tally.processors), folder or "none")
    return tally


SPECULATION = ("method", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max")
"""What a trace tells of a drafter: how it works, and not which model it is."""


def _settings(config: Any) -> dict[str, Any]:
    """What decides how an engine calls processors."""
    found: dict[str, Any] = {
        "max_num_seqs": int(config.scheduler_config.max_num_seqs),
        "max_model_len": int(config.model_config.max_model_len),
        "vocab_size": int(config.model_config.get_vocab_size()),
    }
    if getattr(config.scheduler_config, "async_scheduling", False):
        found["async_scheduling"] = True
    if (speculation := getattr(config, "speculative_config", None)) is not None:
        told = {name: getattr(speculation, name, None) for name in SPECULATION}
        found["speculative_config"] = {name: value for name, value in told.items() if value is not None}
    return found
