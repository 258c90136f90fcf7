"""Installs the watcher in a process of vLLM: around the functions that build processors, and in the API server."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lpkit.portable.base import may_use

from lpkit_conformance.vllm_api.runners import V1, V2, Runner
from lpkit_conformance.watch.evidence import ServerFacts
from lpkit_conformance.watch.numbers import ProcessCounts, ProcessorCounts
from lpkit_conformance.watch.quarantine import QUARANTINES
from lpkit_conformance.watch.reporter import Reporter, logger
from lpkit_conformance.watch.routes import Routes
from lpkit_conformance.watch.run_directory import of_this_run
from lpkit_conformance.watch.settings import WatchSettings, WatchSettingsError, read
from lpkit_conformance.watch.watcher import OptIn, WatchedProcessor, Watcher, wrap_v1, wrap_v2

BUILDERS: Mapping[Runner, tuple[str, str]] = {
    V1: ("vllm.v1.sample.logits_processor", "build_logitsprocs"),
    V2: ("vllm.v1.worker.gpu.sample.logits_processor.loader", "build_custom_logits_processors"),
}
"""vLLM's function that constructs the processors, by runner."""

CONSTRUCTOR_ARGUMENTS: Mapping[Runner, tuple[str, ...]] = {
    V1: ("vllm_config", "device", "is_pin_memory"),
    V2: ("vllm_config", "req_states"),
}
"""The first parameters of these functions: the arguments of the processors' constructors."""

ENDPOINT_PLUGINS = ("vllm.plugins", "load_endpoint_plugins")
"""vLLM's function that returns the plugins with HTTP routes.

lpkit declares no entry point in ``vllm.endpoint_plugins``: vLLM would warn about it in every server, and add its routes
only where ``VLLM_PLUGINS`` names it. ``LPKIT_WATCH`` is the operator's consent to the routes.
"""

BUILT_IN = ("vllm.v1.sample.logits_processor.", "vllm.v1.worker.gpu.sample.")
"""Modules of vLLM's own processors."""

RUNNER_CLASSES: Mapping[Runner, str] = {
    V1: "vllm.v1.worker.gpu_model_runner.GPUModelRunner",
    V2: "vllm.v1.worker.gpu.model_runner.GPUModelRunner",
}

SPECULATION = ("method", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max")
"""Settings of a drafter that a trace holds; its model is not among them."""

_MARK = "_lpkit_watch"


def install(value: str, quarantine: bool = False) -> None:
    """Prepare this process for a value of ``LPKIT_WATCH``. A problem is logged, and leaves the server unwatched.

    Without a value, no rows are compared: a ``quarantine`` of processors that raise needs the numbers and traces.
    """
    try:
        settings = read(value) if value else WatchSettings(budget=0.0)
    except WatchSettingsError as error:
        logger.error("lpkit watch is off: %s", error)
        return
    try:
        folder: Path | None = of_this_run(settings.directory)
    except OSError as error:
        logger.warning("lpkit watch writes no files, and its numbers are only in the log: %s", error)
        folder = None
    for runner, function in BUILDERS.items():
        _after_call(*function, functools.partial(_watch_built, runner, settings, folder, quarantine))
    if folder is not None and settings.routes:
        routes = Routes(folder)
        _after_call(*ENDPOINT_PLUGINS, lambda plugins, *_, **__: plugins.append(routes))


def _after_call(module_name: str, name: str, then: Callable[..., None]) -> None:
    """Call ``then`` with the result and the arguments of each call of a function of vLLM."""
    try:
        original = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        logger.debug("lpkit watch: this vLLM has no %s.%s: %s", module_name, name, error)
        return
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            then(result, *args, **kwargs)
        except Exception:
            logger.warning("lpkit watch: nothing was added to %s; serving is unaffected", name, exc_info=True)
        return result

    setattr(call, _MARK, True)
    # Modules that imported the function by name hold the original.
    for other, module in list(sys.modules.items()):
        if other.startswith("vllm.") and getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, call)


def _watch_built(
    runner: Runner,
    settings: WatchSettings,
    folder: Path | None,
    quarantine: bool,
    built: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    given = dict(zip(CONSTRUCTOR_ARGUMENTS[runner], args, strict=False)) | kwargs
    made_with = [given[name] for name in CONSTRUCTOR_ARGUMENTS[runner]]
    instances = built.all if runner == V1 else built
    custom = [processor for processor in instances if not type(processor).__module__.startswith(BUILT_IN)]
    watch(runner, custom, made_with, settings, folder, str(sys.modules["vllm"].__version__), quarantine)


def watch(
    runner: Runner,
    processors: Sequence[Any],
    made_with: Sequence[Any],
    settings: WatchSettings,
    folder: Path | None,
    version: str,
    quarantine: bool = False,
) -> ProcessCounts:
    """Wrap the processors, without vLLM's own, in the order in which the engine calls them.

    Args:
        made_with: the arguments of their constructors: the engine's configuration first, on V2 its request states next.
        folder: of this run; None: no files are written.
        quarantine: keep exceptions of the processors from the engine.

    Returns:
        The numbers of this process; the watcher updates them.
    """
    counts = ProcessCounts()
    if not processors:
        return counts
    reporter = Reporter(settings, counts, folder)
    server = ServerFacts(version, RUNNER_CLASSES[runner], _engine_settings(made_with[0]))
    watcher = Watcher(settings, runner, server, counts, reporter)
    leads = True
    for number, processor in enumerate(processors):
        cls: Any = type(processor)
        name = f"{cls.__module__}:{cls.__qualname__}"
        # Two instances of a class share their counts.
        shared = counts.processors.get(name, ProcessorCounts())
        receipts = getattr(processor, "receipt_counts", None)
        if receipts is not None:
            shared.rules = receipts
        watched = WatchedProcessor(name, number, _opt_in(processor, settings.arguments.get(name)), shared)
        try:
            if quarantine:
                build = functools.partial(cls, *made_with)
                report = functools.partial(_quarantined, watcher, watched)
                QUARANTINES[runner](build, settings.quarantine_after, shared, report).install(processor)
            if runner == V1:
                wrap_v1(processor, watcher, watched, leads)
            else:
                wrap_v2(processor, watcher, watched, leads, made_with[1])
        except AttributeError as error:
            logger.warning("lpkit watch cannot watch %s: its methods cannot be replaced: %s", name, error)
            continue
        counts.processors[name] = shared
        leads = False
    reporter.start()
    on = "watch and quarantine are" if quarantine else "watch is"
    logger.info("lpkit %s on for %s; files: %s", on, ", ".join(counts.processors), folder or "none")
    return counts


def _quarantined(watcher: Watcher, watched: WatchedProcessor, method: str, params: Any, error: Exception) -> None:
    watcher.guarded(lambda: watcher.raised(watched, method, params, error, quarantined=True))


def _opt_in(processor: Any, keys: Sequence[str] | None) -> OptIn:
    """Return a function that decides if a request uses a processor: by the operator's ``keys``, or by its class."""
    if keys is None:
        return lambda params: may_use(processor, params)
    return lambda params: not frozenset(keys).isdisjoint(params.extra_args or ())


def _engine_settings(config: Any) -> dict[str, Any]:
    """Return the settings that decide how an engine calls processors."""
    settings: dict[str, Any] = {
        "max_num_seqs": int(config.scheduler_config.max_num_seqs),
        "max_model_len": int(config.model_config.max_model_len),
        "vocab_size": int(config.model_config.get_vocab_size()),
    }
    if getattr(config.scheduler_config, "async_scheduling", False):
        settings["async_scheduling"] = True
    if (speculation := getattr(config, "speculative_config", None)) is not None:
        drafter = {name: getattr(speculation, name, None) for name in SPECULATION}
        settings["speculative_config"] = {name: value for name, value in drafter.items() if value is not None}
    return settings
