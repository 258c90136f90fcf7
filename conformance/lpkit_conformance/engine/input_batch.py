"""The workload without a model: vLLM's own InputBatch, driven as a worker drives it, attention-backend swaps included.

Import this module only in a process that ``engine.prepare`` has prepared.
"""

from __future__ import annotations

import importlib
import inspect
import random
from collections.abc import Sequence
from typing import Any

from lpkit_conformance.engine.recorders import V1Recorder, V1Tap

MAX_NUM_SEQS = 10
MAX_MODEL_LEN = 128
VOCAB_SIZE = 512
BLOCK = 16
STEPS = 160
SEED = 9


def input_batch(size: int, max_model_len: int, vocab_size: int, processors: Sequence[Any], **more: Any) -> Any:
    """vLLM's ``InputBatch`` of ``size`` rows on the host; ``more``: of its arguments, whatever a test needs."""
    cls = importlib.import_module("vllm.v1.worker.gpu_input_batch").InputBatch
    if "kernel_block_sizes" in inspect.signature(cls).parameters:  # of older releases
        more["kernel_block_sizes"] = [BLOCK]
    return cls(
        max_num_reqs=size,
        max_model_len=max_model_len,
        max_num_batched_tokens=1024,
        device=importlib.import_module("torch").device("cpu"),
        vocab_size=vocab_size,
        block_sizes=[BLOCK],
        max_num_blocks_per_req=[max_model_len // BLOCK],
        logitsprocs=importlib.import_module("vllm.v1.sample.logits_processor").LogitsProcessors(processors),
        **more,
    )


class _Driver:
    """A worker's bookkeeping around an InputBatch, with a random program instead of a scheduler."""

    def __init__(self) -> None:
        self._state_class = importlib.import_module("vllm.v1.worker.gpu_input_batch").CachedRequestState
        self._params_class = importlib.import_module("vllm.sampling_params").SamplingParams
        recorder = V1Recorder(None, importlib.import_module("torch").device("cpu"), False)
        self.recorder = recorder
        self.batch: Any = input_batch(MAX_NUM_SEQS, MAX_MODEL_LEN, VOCAB_SIZE, [recorder])
        self.states: dict[str, Any] = {}
        self.left: dict[str, int] = {}  # tokens still to come
        self.waiting: list[str] = []  # preempted
        self.rng = random.Random(SEED)
        self.tap = V1Tap(
            recorder, self.batch, lambda: {name: state.output_token_ids for name, state in self.states.items()}
        )

    def _new(self) -> str:
        name = f"r{len(self.left)}"
        self.left[name] = self.rng.choice((1, 3, 6, 10, 20, 40))
        self.states[name] = self._state_class(
            req_id=name,
            prompt_token_ids=[self.rng.randrange(VOCAB_SIZE) for _ in range(self.rng.randint(1, 20))],
            mm_features=[],
            sampling_params=self._params_class(max_tokens=self.left[name], temperature=float(len(self.left) % 2)),
            generator=None,
            block_ids=([1],),
            num_computed_tokens=0,
            output_token_ids=[],
        )
        return name

    def step(self, arrivals: int) -> None:
        rng, batch = self.rng, self.batch
        for name in [name for name in batch.req_ids if self.left[name] == 0]:
            batch.remove_request(name)
            del self.states[name]
        running = sorted(batch.req_id_to_index)
        if running and rng.random() < 0.15:
            name = rng.choice(running)
            batch.remove_request(name)
            if rng.random() < 0.5:
                self.waiting.append(name)
            else:
                del self.states[name]  # aborted
        room = MAX_NUM_SEQS - batch.num_reqs
        entering = []
        if self.waiting and room and rng.random() < 0.5:
            entering.append(self.waiting.pop(0))
        while arrivals and len(entering) < room:
            entering.append(self._new())
            arrivals -= 1
        for name in entering:
            batch.add_request(self.states[name])
        batch.condense()
        if batch.num_reqs > 1 and rng.random() < 0.7:
            for _ in range(rng.randint(1, 4)):
                batch.swap_states(*rng.sample(range(batch.num_reqs), 2))
        batch.refresh_metadata()
        self._sample()

    def _sample(self) -> None:
        batch = self.batch
        if batch.num_reqs:
            self.recorder.apply(None)
        for row, name in enumerate(batch.req_ids):
            token = self.rng.randrange(VOCAB_SIZE)
            batch.token_ids_cpu[row, batch.num_tokens_no_spec[row]] = token
            batch.num_tokens_no_spec[row] += 1
            self.states[name].output_token_ids.append(token)
            self.left[name] -= 1
        self.tap.end([False] * batch.num_reqs)


def record_swaps() -> V1Tap:
    """Run the program and return what was heard: arrivals in bursts, with pauses in which nothing changes."""
    driver = _Driver()
    for step in range(STEPS):
        driver.step(arrivals=driver.rng.choice((0, 0, 1, 3)) if step < STEPS - 45 else 0)
    while driver.batch.num_reqs or driver.waiting:
        driver.step(arrivals=0)
    driver.step(arrivals=0)
    return driver.tap
