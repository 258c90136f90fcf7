"""Questions of the plugin tests to an engine. Imported in the engine's process only."""

from __future__ import annotations

from typing import Any


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
