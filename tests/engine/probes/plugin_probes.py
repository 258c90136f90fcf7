"""Questions of the plugin tests to an engine. Imported in the engine's process only."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

_placed: list[str] = []
_entry_points = importlib.metadata.entry_points  # a check hides those of processors


def place(folders: tuple[str, ...]) -> None:
    """Let this process import from these folders, and not from the last ones; no module of these or here stays."""
    gone = *_placed, str(Path(__file__).parent)
    sys.path[:] = [*folders, *(entry for entry in sys.path if entry not in _placed)]
    _placed[:] = folders
    importlib.invalidate_caches()
    for name, module in list(sys.modules.items()):
        if name != __name__ and (getattr(module, "__file__", None) or "").startswith(gone):
            del sys.modules[name]
    importlib.metadata.entry_points = _entry_points
    # vLLM keeps the classes that check a request's arguments.
    for name, loader in (
        ("vllm.v1.sample.logits_processor", "cached_load_custom_logitsprocs"),
        ("vllm.v1.worker.gpu.sample.logits_processor.loader", "_cached_load_v2_logitsprocs"),
    ):
        if name in sys.modules:
            getattr(sys.modules[name], loader).cache_clear()
            if hasattr(sys.modules[name], "entry_points"):
                vars(sys.modules[name])["entry_points"] = _entry_points


def watch(engine: Any) -> None:
    """Count preemptions and partial prefills from here on."""
    scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
    engine.seen = {"preemptions": 0, "partial prefills": 0}
    preempt, schedule = scheduler._preempt_request, scheduler.schedule

    def preempting(*arguments: Any, **options: Any) -> Any:
        engine.seen["preemptions"] += 1
        return preempt(*arguments, **options)

    def scheduling(*arguments: Any, **options: Any) -> Any:
        output = schedule(*arguments, **options)
        for request in scheduler.running:
            # Counters are ahead of the step that was just planned.
            if output.num_scheduled_tokens.get(request.request_id) and request.num_computed_tokens < request.num_tokens:
                engine.seen["partial prefills"] += 1
        return output

    scheduler._preempt_request, scheduler.schedule = preempting, scheduling


def seen(engine: Any) -> dict[str, int]:
    found: dict[str, int] = engine.seen
    return found


def processors(engine: Any) -> list[str]:
    """The names of the processors that the engine constructed beside its own, in its order."""
    runner = engine.model_runner
    if engine.settings.runner == "v1":
        found = list(runner.input_batch.logitsprocs.all)
    else:
        found = list(runner.sampler.logits_processors)
    return [type(item).__name__ for item in found if not type(item).__module__.startswith("vllm.")]


def is_async(engine: Any) -> bool:
    """Return True if the engine schedules a step before it knows the last step's tokens."""
    return bool(engine.llm.llm_engine.vllm_config.scheduler_config.async_scheduling)


def count_drafts(engine: Any) -> None:
    """Count rows and requests of the calls that processors get from here on."""
    engine.calls = []
    loaded = engine.model_runner.sampler.logits_processors
    processor = next(item for item in loaded if not type(item).__module__.startswith("vllm."))
    apply = processor.apply

    def counted(logits: Any, context: Any) -> Any:
        engine.calls.append((logits.shape[0], len(context.idx_mapping_np)))
        return apply(logits, context)

    processor.apply = counted


def calls(engine: Any) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = engine.calls
    return found
