"""Has vLLM's builders of processors hand out watched ones, in this process."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lpkit_conformance.vllm_api.runners import V1, V2, Runner
from lpkit_conformance.watch.reporter import logger
from lpkit_conformance.watch.run_directory import of_this_run
from lpkit_conformance.watch.settings import Settings, SettingsError, read

BUILDERS: Mapping[Runner, tuple[str, str]] = {
    V1: ("vllm.v1.sample.logits_processor", "build_logitsprocs"),
    V2: ("vllm.v1.worker.gpu.sample.logits_processor.loader", "build_custom_logits_processors"),
}
BUILT_IN = ("vllm.v1.sample.logits_processor.", "vllm.v1.worker.gpu.sample.")
"""Modules of vLLM's own processors."""

_MARK = "_lpkit_watch"


def install() -> None:
    """Prepare this process; what goes wrong is logged, and nothing is watched then."""
    try:
        settings = read(os.environ)
    except SettingsError as error:
        logger.error("lpkit watch is off: %s", error)
        return
    try:
        folder: Path | None = of_this_run(settings.directory)
    except OSError as error:
        logger.warning("lpkit watch writes no files, its numbers are in the log only: %s", error)
        folder = None
    for runner, (module, name) in BUILDERS.items():
        try:
            _replace(module, name, functools.partial(_built, runner, settings, folder))
        except ImportError as error:  # a release without this runner
            logger.debug("lpkit watch: no %s: %s", runner, error)
        except Exception:
            logger.warning("lpkit watch cannot watch %s; serving is unaffected", runner, exc_info=True)


def _replace(module_name: str, name: str, watch: Callable[..., None]) -> None:
    original = getattr(importlib.import_module(module_name), name)
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def build(*args: Any, **kwargs: Any) -> Any:
        processors = original(*args, **kwargs)
        try:
            watch(processors, *args, **kwargs)
        except Exception:
            logger.warning("lpkit watch is off; serving is unaffected", exc_info=True)
        return processors

    setattr(build, _MARK, True)
    # Modules that were imported already hold it by its name.
    for found, module in list(sys.modules.items()):
        if found.startswith("vllm.") and getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, build)


def _built(runner: Runner, settings: Settings, folder: Path | None, processors: Any, *args: Any, **kwargs: Any) -> None:
    from lpkit_conformance.watch.engine import watch

    config = kwargs.get("vllm_config", args[0] if args else None)
    states = kwargs.get("req_states", args[1] if len(args) > 1 else None)
    instances = processors.all if runner == V1 else processors
    custom = [one for one in instances if not type(one).__module__.startswith(BUILT_IN)]
    watch(runner, custom, config, states, settings, folder, str(sys.modules["vllm"].__version__))
