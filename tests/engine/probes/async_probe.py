"""``AsyncLLM`` as a program uses it: ``python async_probe.py RUNNER MODEL [module:Class] < requests > answers``.

``requests``: JSON, {name: [prompt token ids, arguments of SamplingParams]}. ``answers``: JSON with, of each request,
the pieces in which its tokens came or the error it got; once sent alone ("solo"), once all at once ("together").
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from lpkit_conformance.engine.tiny import prepare

RUNNER, MODEL, *PROCESSORS = sys.argv[1:]

# Not under the guard below: vLLM spawns its engine, and a spawned process imports this file too before anything else.
prepare(RUNNER)  # type: ignore[arg-type]


def start(most_at_once: list[int]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Watch(StatLoggerBase):
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def log_engine_initialized(self) -> None: ...

        def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
            if scheduler_stats is not None:
                most_at_once.append(scheduler_stats.num_running_reqs)

    settings = AsyncEngineArgs(
        model=MODEL,
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=16,
        logits_processors=PROCESSORS or None,
    )
    return AsyncLLM.from_engine_args(settings, stat_loggers=[Watch])


async def ask(engine: Any, name: str, prompt: list[int], params: dict[str, Any]) -> dict[str, Any]:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    pieces = []
    try:
        sampling = SamplingParams(**params, output_kind=RequestOutputKind.DELTA, detokenize=False)
        async for output in engine.generate({"prompt_token_ids": prompt}, sampling, name):
            pieces.append(list(output.outputs[0].token_ids))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"pieces": pieces}


async def run(requests: dict[str, Any]) -> dict[str, Any]:
    most_at_once: list[int] = []
    engine = start(most_at_once)
    try:
        answers: dict[str, Any] = {}
        for turn in ("solo", "together"):
            most_at_once.clear()
            asks = [ask(engine, f"{turn} {name}", *request) for name, request in requests.items()]
            done = await asyncio.gather(*asks) if turn == "together" else [await one for one in asks]
            answers[turn] = dict(zip(requests, done, strict=True))
            answers[f"most at once, {turn}"] = max(most_at_once)
        return answers
    finally:
        engine.shutdown()


if __name__ == "__main__":
    # Other output goes to stderr, and the answers alone to stdout.
    answers_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    json.dump(asyncio.run(run(json.load(sys.stdin))), answers_to)
    answers_to.close()
