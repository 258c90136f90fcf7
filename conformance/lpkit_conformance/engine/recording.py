"""Records workloads: runs each on a real engine, in a prepared process, and writes its trace."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from lpkit_conformance.engine import beyond_cpu
from lpkit_conformance.engine.recorded_workloads import RecordedWorkload
from lpkit_conformance.engine.tiny import TinyEngine, import_vllm, prepare
from lpkit_conformance.traces import EngineInfo, Trace, validate, write
from lpkit_conformance.vllm_api.runners import V1


def record(workload: RecordedWorkload) -> Trace:
    """Run the workload in this process, in which no engine runs, and return its trace, validated.

    Raises EngineError when there is no engine, TraceError when the engine did something that the schema cannot express.
    """
    prepare(workload.runner)
    info, settings, tap = _batch() if workload.settings is None else _engine(workload)
    steps: dict[str, Any] = {f"{workload.runner}_steps": tuple(tap.steps)}
    trace = remap(Trace(workload.runner, workload.name, info, settings, "verbatim", tap.requests, **steps))
    validate(trace)
    return trace


def record_to(workload: RecordedWorkload, path: str) -> dict[str, Any]:
    """``record`` and write to ``path``; what was recorded, for a progress line."""
    trace = record(workload)
    write(trace, Path(path))
    return {"steps": len(trace.steps), "requests": len(trace.requests), "runner_class": trace.engine.runner_class}


def _engine(workload: RecordedWorkload) -> tuple[EngineInfo, dict[str, Any], Any]:
    """Return the engine, its settings, and the tap that has listened to it."""
    settings = workload.settings
    assert settings is not None
    import_vllm()
    # Only now, in the prepared process, may vLLM be imported.
    recorders = importlib.import_module("lpkit_conformance.engine.recorders")
    v1 = workload.runner == V1
    with TinyEngine(settings, [recorders.V1Recorder if v1 else recorders.V2Recorder]) as engine:
        if workload.decodes_first:
            beyond_cpu.separate_decodes(engine.model_runner)
        tap = recorders.listen(workload.runner, engine.model_runner)
        engine.generate(workload.asks)
        info = EngineInfo("vllm", engine.version, "engine", engine.runner_class)
    return info, settings.summary() | ({"decodes_first": True} if workload.decodes_first else {}), tap


def _batch() -> tuple[EngineInfo, dict[str, Any], Any]:
    batch = importlib.import_module("lpkit_conformance.engine.input_batch")
    tap = batch.record_swaps()
    version = importlib.import_module("vllm").__version__
    info = EngineInfo("vllm", version, "input_batch", "vllm.v1.worker.gpu_input_batch.InputBatch")
    sizes = {"max_num_seqs": batch.MAX_NUM_SEQS, "max_model_len": batch.MAX_MODEL_LEN, "vocab_size": batch.VOCAB_SIZE}
    return info, sizes, tap


def remap(trace: Trace) -> Trace:
    """The same trace with token ids numbered by their first appearance in the file; -1 stays -1."""
    number: dict[int, int] = {-1: -1}

    def new(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number.setdefault(token, len(number) - 1) for token in ids)

    def step(old: Any) -> Any:
        calls = tuple(replace(call, inputs=new(call.inputs)) for call in getattr(old, "applies", ()))
        tokens = {name: new(ids) for name, ids in old.tokens.items()}
        return replace(old, tokens=tokens, **({"applies": calls} if calls else {}))

    requests = {
        name: request if request.prompt is None else replace(request, prompt=new(request.prompt))
        for name, request in trace.requests.items()
    }
    return replace(
        trace,
        token_ids="remapped",
        requests=requests,
        v1_steps=tuple(map(step, trace.v1_steps)),
        v2_steps=tuple(map(step, trace.v2_steps)),
    )
