"""vLLM's V2 sampler beside ours, in a process that runs Triton's interpreter: the same steps go through both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import vllm.v1.worker.cpu.shm  # noqa: F401 - what vLLM puts in place of pinned memory on a CPU
from lpkit.runtime import LogitsSource, Request, Sampled, ThinkingMarkers, V2Engine, V2Sampler, needs_processing
from lpkit.sampling_params import SamplingParams
from lpkit.v2 import LogitsContext, LogitsProcessor
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch
from vllm.v1.worker.gpu.input_batch import post_update
from vllm.v1.worker.gpu.sample import states
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.states import RequestState

SIZE, VOCAB, LENGTH, DRAFTS = 6, 128, 64, 3
# The model favours few tokens, so that markers, bad words, repetitions and right drafts occur.
FEW = range(8)
MARKERS = (
    ThinkingMarkers((1,), (2, 4), (2,)),
    ThinkingMarkers((1, 3), (2, 4)),
    ThinkingMarkers((1,), (2, 4, 2)),
    ThinkingMarkers((1, 1), (2, 2, 4)),
    ThinkingMarkers((1,), (2, 4), (5,)),
)
CPU = torch.device("cpu")


class Custom(LogitsProcessor):
    """Asks to be called where a request has extra arguments."""

    def __init__(self, config: Any, req_states: Any) -> None:
        self.states = req_states

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        return sampling_params.extra_args is not None


class Revive(Custom):
    """Undoes the masks of the stages before it, and scales: neither commutes with a stage beside it."""

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        return torch.where(logits.isneginf(), -4.0, logits) * 0.5


class Shift(Custom):
    """Raises each request's newest committed token, as the shared buffers have it, and where it stands."""

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping
        newest = self.states.all_token_ids.gpu[slots, (self.states.total_len.gpu[slots] - 1).long()]
        logits[torch.arange(len(slots)), newest.long()] += 2
        logits += ctx.pos.unsqueeze(1) / 64 + ctx.expanded_local_pos.unsqueeze(1)
        return logits


class Theirs:
    """vLLM's request states and sampler, which follow the steps of one of our engines."""

    def __init__(self, markers: ThinkingMarkers) -> None:
        # The interpreter cannot run the kernel of this one stage; this is vLLM's own code for machines without Triton.
        states.apply_top_k_top_p = apply_top_k_top_p_pytorch
        self.states = RequestState(SIZE, LENGTH, 64, DRAFTS, VOCAB, CPU)
        self.start = markers.start
        config: Any = SimpleNamespace(reasoning_config=markers.as_config())
        self.processors = [Revive(config, self.states), Shift(config, self.states)]
        self.sampler = Sampler(
            config, SIZE, VOCAB, CPU, self.states, "raw_logits", DRAFTS, custom_logits_processors=self.processors
        )

    def change(self, freed: tuple[str, ...], added: list[tuple[str, SamplingParams, int, list[int]]]) -> list[int]:
        """The slots of what is added."""
        for name in freed:
            self.states.remove_request(name)
        for name, params, prompt_len, tokens in added:
            self.states.add_request(name, prompt_len, tokens, 0, LENGTH)
            self.sampler.add_request(self.states.req_id_to_index[name], params)
        self.states.apply_staged_writes()
        self.sampler.apply_staged_writes()
        return [self.states.req_id_to_index[name] for name, *_ in added]

    def process(self, raw: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        return self.sampler.apply_sampling_params(
            raw,
            ctx.expanded_idx_mapping,
            ctx.idx_mapping,
            ctx.idx_mapping_np,
            ctx.pos,
            ctx.input_ids,
            ctx.expanded_local_pos,
            ctx.seq_lens_upper_bound_np,
        )

    def commit(self, tokens: dict[str, list[int]]) -> None:
        if not tokens:
            return
        slots = torch.tensor([self.states.req_id_to_index[name] for name in tokens])
        padded = torch.tensor([[*ids, *[0] * (DRAFTS + 1 - len(ids))] for ids in tokens.values()])
        post_update(
            slots,
            self.states.num_computed_tokens.gpu,
            self.states.last_sampled_tokens,
            self.sampler.penalties_state.output_bin_counts,
            padded,
            torch.tensor([len(ids) for ids in tokens.values()], dtype=torch.int32),
            torch.zeros(len(tokens), dtype=torch.int32),
            None,
            self.states.all_token_ids.gpu,
            self.states.total_len.gpu,
        )


def _params(rng: random.Random, stages: str) -> SamplingParams:
    """``stages`` is the one that half of the requests use, or how many each uses: "some" or "all"."""
    values: dict[str, Any] = {
        "top_k": rng.choice([1, 5, 50]),
        "top_p": rng.choice([0.3, 0.7, 0.95]),
        "min_p": rng.choice([0.02, 0.2]),
        "repetition_penalty": rng.choice([1.5, 0.7]),
        "frequency_penalty": rng.choice([0.8, -0.5]),
        "presence_penalty": rng.choice([1.1, -0.4]),
        "logit_bias": {rng.choice(FEW): 5.0, 100: -4.0, 127: 6.0},
        "allowed_token_ids": rng.choice([list(FEW), [3, 5, 6, 120]]),
        "min_tokens": rng.choice([1, 6]),
        "thinking_token_budget": rng.choice([0, 1, 3]),
        "bad_words": rng.choice([[[3]], [[3, 5], [6, 6, 3]], [[1, 127], [5, 5]]]),
        "extra_args": {"ask": True},
        "temperature": rng.choice([0.5, 2.0]),
    }
    chance = {"some": 0.35, "all": 0.9}.get(stages, 0.0)
    chosen = {name for name in values if rng.random() < (0.5 if name == stages else chance)}
    used = {"temperature": rng.choice([0.0, 1.0])} | {name: values[name] for name in chosen}
    bad_words = used.pop("bad_words", None)
    stops = rng.sample(FEW, rng.randint(0, 3))
    params = SamplingParams(stop_token_ids=stops, max_tokens=50, **used)
    params._bad_words_token_ids = bad_words
    return params


OPTIONS: dict[str, list[Any]] = {
    "temperature": [0.0, 0.005, 0.5, 1.0, 2.0],
    "top_k": [-1, 0, 1, VOCAB - 1, VOCAB, VOCAB + 1],
    "top_p": [0.5, 1.0],
    "min_p": [0.0, 0.1],
    "repetition_penalty": [0.5, 1.0, 1.5],
    "frequency_penalty": [-0.5, 0.0, 0.5],
    "presence_penalty": [-0.5, 0.0, 0.5],
    "logit_bias": [None, {}, {3: 0.0}, {3: 1.0}],
    "allowed_token_ids": [None, [1, 2]],
    "min_tokens": [0, 2],
    "stop_token_ids": [[], [5]],
    "ignore_eos": [False, True],
    "bad_words": [None, [], [[3]]],
    "thinking_token_budget": [None, 0, 3],
    "structured_outputs": [None, StructuredOutputsParams(json_object=True)],
    "seed": [None, 7],
    "logprobs": [None, 0, 5, -1],
    "logprob_token_ids": [None, [1]],
    "prompt_logprobs": [None, 1],
    "extra_args": [None, {"ask": True}],
}
"""Values of each option around the neutral one."""


def gate(seed: int, count: int) -> dict[str, Any]:
    """For ``count`` random requests what opens vLLM's gate and what opens ours, without custom processors.

    Also the stages that vLLM's sampler asks.
    """
    rng = random.Random(seed)
    found = []
    for markers in (None, MARKERS[0], ThinkingMarkers((1,), ()), ThinkingMarkers((), (2,))):
        config: Any = SimpleNamespace(reasoning_config=None if markers is None else markers.as_config())
        requests = RequestState(SIZE, LENGTH, 64, DRAFTS, VOCAB, CPU)
        sampler = Sampler(config, SIZE, VOCAB, CPU, requests, "raw_logits", DRAFTS)
        for _ in range(count):
            names = rng.sample(list(OPTIONS), rng.choice([0, 1, 1, 1, 2, 3]))
            fields = {"temperature": rng.choice([0.0, 1.0]), **{name: rng.choice(OPTIONS[name]) for name in names}}
            bad_words = fields.pop("bad_words", None)
            params = SamplingParams(**fields)
            params._bad_words_token_ids = bad_words
            sampler.add_request(0, params)
            found.append(
                (repr(fields), bool(sampler.needs_logits_processing[0]), needs_processing(params, VOCAB, markers))
            )
    stages = sorted(type(value).__name__ for value in vars(sampler).values() if hasattr(value, "add_request"))
    return {
        "answers": found,
        "stages": stages,
        "processors": [type(processor).__name__ for processor in sampler.logits_processors],
    }


class Kept(V2Sampler):
    """Our sampler, and what it was called with last."""

    context: LogitsContext

    def __call__(self, logits: torch.Tensor, ctx: LogitsContext, requests: Sequence[Request]) -> Sampled:
        self.context = ctx
        return super().__call__(logits, ctx, requests)


def differential(seed: int, steps: int, stages: str, markers: int = 0) -> list[dict[str, Any]]:
    """Random steps through both: what each side made of the same logits, and what the step consisted of."""
    rng = random.Random(f"{seed} {stages}")
    ours = V2Engine(
        [Revive, Shift],
        LogitsSource(VOCAB, seed, likely=FEW),
        max_num_seqs=SIZE,
        max_model_len=LENGTH,
        thinking=MARKERS[markers],
        num_speculative_tokens=DRAFTS,
        device="cpu",
    )
    ours.sampler.__class__ = Kept
    theirs = Theirs(MARKERS[markers])
    return [_step(rng, ours, theirs, f"{step}", stages) for step in range(steps)]


def _step(rng: random.Random, ours: V2Engine, theirs: Theirs, label: str, stages: str) -> dict[str, Any]:
    drafts = _program(rng, ours, label, stages, theirs.start if stages == "thinking_token_budget" else ())
    partial = {
        name: rng.randrange(1, request.remaining)
        for name, request in ours.requests.items()
        if name in ours._active and name not in drafts and request.remaining > 1 and rng.random() < 0.4
    }
    result = ours.step(partial=partial, drafts=drafts)
    added = []
    for name, _ in result.added:
        request = ours.requests[name]
        before = request.total_len - len(result.tokens.get(name, ()))
        tokens = [*(request.prompt_token_ids or ()), *request.output_token_ids][:before]
        added.append((name, request.params, request.prompt_len, tokens))
    slots = theirs.change(result.freed, added)
    fact: dict[str, Any] = {"slots": (slots, [slot for _, slot in result.added]), "rows": len(result.rows)}
    if result.raw is None or result.processed is None or result.sampled is None:
        return fact
    ctx = ours.sampler.context  # type: ignore[attr-defined]
    gate = bool(theirs.sampler.needs_logits_processing[ctx.idx_mapping_np].any())
    processed = theirs.process(result.raw, ctx)
    theirs.commit(result.tokens)
    params = [ours.requests[row.request_id].params for row in result.rows]
    return fact | {
        "gate": (gate, result.applied),
        "logits": (processed.numpy(), result.processed.numpy()),
        "greedy": np.array([p.temperature == 0 for p in params]),
        "sampled": result.sampled.numpy(),
        "partial": len(partial),
        "drafted": sum(map(len, drafts.values())),
        "accepted": sum(len(result.tokens[name]) - 1 for name in drafts),
        "resumed": sum(len(tokens) > prompt_len for _, _, prompt_len, tokens in added),
        "lengths": (theirs.states.total_len.gpu.numpy().copy(), ours.slots.total_len.gpu.numpy().copy()),
    }


def _program(
    rng: random.Random, ours: V2Engine, label: str, stages: str, begin: tuple[int, ...]
) -> dict[str, list[int]]:
    """Requests that leave, arrive, are preempted and resume before the step; the drafts of the step.

    Prompts begin with ``begin``.
    """
    for name in list(ours.requests):
        if rng.random() < 0.12 or ours.requests[name].total_len > LENGTH - 2 * DRAFTS:
            ours.finish(name)
        elif name in ours._active and rng.random() < 0.12:
            ours.preempt(name)
        elif name not in ours._active and len(ours._active) < SIZE and rng.random() < 0.4:
            ours.resume(name)
    while len(ours._active) < SIZE and rng.random() < 0.6:
        few = [rng.choice(FEW) if rng.random() < 0.7 else rng.randrange(VOCAB) for _ in range(rng.randint(1, 12))]
        ours.add(Request(f"r{label}.{len(ours.requests)}", _params(rng, stages), [*begin, *few]))
    drafts = {}
    for name in ours._active:
        if ours.requests[name].remaining == 1 and rng.random() < 0.4:
            drafts[name] = _guess(rng, ours, ours.requests[name])
    return drafts


def _guess(rng: random.Random, ours: V2Engine, request: Request) -> list[int]:
    """Drafts: what the model itself likes best, something else, or a placeholder."""
    places = [(request.request_id, request.total_len - 1 + n) for n in range(rng.randint(1, DRAFTS))]
    best = ours.source.rows(places).argmax(-1).tolist()
    return [rng.choices([token, rng.choice(FEW), -1], [12, 6, 1])[0] for token in best]
