"""The reference runtime against vLLM's own batch, slots and sampler, driven by the same random operations.

No model is loaded.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # importing vLLM warns
    from lpkit import v1
    from lpkit.runtime import (
        LogitsSource,
        Request,
        V1Batch,
        V1Sampler,
        V2Engine,
        V2Slots,
        make_config,
    )
    from lpkit.sampling_params import SamplingParams
    from lpkit_conformance.engine.input_batch import input_batch
    from vllm.v1.sample.logits_processor import builtin as vllm_builtin
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.worker.gpu.buffer_utils import StagedWriteTensor, UvaBackedTensor
    from vllm.v1.worker.gpu.model_runner import sort_batch_req_ids
    from vllm.v1.worker.gpu.states import RequestState
    from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

VOCAB = 256
CPU = torch.device("cpu")


class Recorder(v1.LogitsProcessor):
    """Keeps every update."""

    def __init__(self) -> None:
        self.updates: list[v1.BatchUpdate | None] = []

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        self.updates.append(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


def vllm_batch(size: int, processors: list[Any]) -> InputBatch:
    batch: InputBatch = input_batch(size, 64, VOCAB, processors, logitsprocs_need_output_token_ids=True)
    return batch


def cached(request: Request) -> CachedRequestState:
    """The same request as vLLM knows it, with the same lists."""
    return CachedRequestState(
        req_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        mm_features=[],
        sampling_params=request.params,
        generator=None,
        block_ids=([0],),
        num_computed_tokens=0,
        output_token_ids=request.output_token_ids,
    )


def plain(update: v1.BatchUpdate | None) -> Any:
    """Comparable, with the identity of everything that is passed by reference."""
    if update is None:
        return None
    added = [(row, id(params), id(prompt), id(outputs)) for row, params, prompt, outputs in update.added]
    return update.batch_size, list(update.removed), added, list(update.moved)


@pytest.mark.parametrize(("size", "steps"), [(1, 1000), (2, 2000), (8, 5000), (64, 1500), (256, 500)])
def test_v1_batch_emits_the_updates_of_vllms_input_batch(size: int, steps: int) -> None:
    rng = random.Random(size)
    recorder = Recorder()
    theirs, ours = vllm_batch(size, [recorder]), V1Batch(size)
    away: list[Request] = []
    kinds: set[str] = set()
    for step in range(steps):
        present = [request.request_id for request in ours.requests]
        leaving = rng.sample(present, rng.randint(0, len(present))) if rng.random() < 0.6 else []
        rows = {request.request_id: request for request in ours.requests}
        for name in leaving:
            assert theirs.remove_request(name) == ours.remove(name)
            if rng.random() < 0.4:
                away.append(rows[name])
        arriving = rng.randint(0, size - len(ours)) if rng.random() < 0.6 else 0
        for number in range(arriving):
            if away and rng.random() < 0.5:
                request = away.pop(rng.randrange(len(away)))
                if rng.random() < 0.5:
                    request.output_token_ids = list(request.output_token_ids)
            else:
                params = SamplingParams(temperature=rng.choice([0.0, 1.0]))
                prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))]
                request = Request(f"r{step}.{number}", params, prompt)
            assert theirs.add_request(cached(request)) == ours.add(request)
        theirs.condense()
        ours.condense()
        for _ in range(rng.randint(0, 4) if len(ours) > 1 and rng.random() < 0.4 else 0):
            first, second = rng.sample(range(len(ours)), 2)
            theirs.swap_states(first, second)
            ours.swap(first, second)
        theirs.refresh_metadata()
        update = ours.take_update()
        assert plain(update) == plain(recorder.updates[-1])
        assert theirs.req_ids == [request.request_id for request in ours.requests]
        for request in ours.requests:
            if request.total_len < 60 and rng.random() < 0.7:
                request.output_token_ids.append(rng.randrange(VOCAB))
        if update is not None:
            kinds |= {kind.name for *_, kind in update.moved}
            kinds |= {name for name in ("removed", "added") if getattr(update, name)}
            kinds |= {"resumed" for *_, outputs in update.added if outputs}
    assert len(recorder.updates) == steps
    assert size <= 2 or kinds == {"UNIDIRECTIONAL", "SWAP", "removed", "added", "resumed"}


class HostUva:
    """vLLM's slot buffers want pinned memory, which a machine without a GPU lacks; the order does not."""

    def __init__(self, size: Any, dtype: torch.dtype) -> None:
        self.cpu = torch.zeros(size, dtype=dtype)
        self.np = self.cpu.numpy()

    def uva(self, n: int | None = None) -> torch.Tensor:
        return self.cpu if n is None else self.cpu[:n]


@pytest.fixture
def request_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], RequestState]]:
    from vllm.v1.worker.gpu import buffer_utils

    monkeypatch.setattr(buffer_utils, "is_uva_available", lambda: False)
    monkeypatch.setattr(buffer_utils, "NonUvaBuffer", HostUva)
    yield lambda size: RequestState(size, 64, 64, 0, VOCAB, CPU)


def test_v2_buffers_have_vllms_dtypes_and_rebind_what_vllm_rebinds(
    request_state: Callable[[int], RequestState],
) -> None:
    theirs, ours = request_state(4), V2Slots(4, 64, vocab_size=VOCAB)
    assert isinstance(theirs.prompt_len, UvaBackedTensor) and isinstance(theirs.total_len, StagedWriteTensor)
    for name in ("prompt_len", "prefill_len", "total_len", "all_token_ids"):
        left, right = getattr(theirs, name), getattr(ours.state, name)
        assert left.gpu.dtype == right.gpu.dtype and left.gpu.shape == right.gpu.shape
        if hasattr(left, "np"):
            assert left.np.dtype == right.np.dtype
            before = left.gpu, right.gpu
            left.copy_to_uva()
            ours.flush()
            assert left.gpu is not before[0] and right.gpu is not before[1]


@pytest.mark.parametrize("most_drafts", [0, 3])
def test_v2_rows_are_sorted_as_vllm_sorts_them(most_drafts: int) -> None:
    rng = random.Random(3)
    for _ in range(500):
        engine = V2Engine(device="cpu", vocab_size=128, max_num_seqs=16, num_speculative_tokens=most_drafts)
        plan: dict[str, int] = {}
        drafts: dict[str, list[int]] = {}
        for i in range(rng.randint(1, 16)):
            name = f"r{i}"
            engine.add(Request(name, SamplingParams(temperature=0), [1] * rng.randint(1, 6)))
            plan[name] = rng.randint(1, engine.requests[name].prompt_len)
            if plan[name] == engine.requests[name].remaining and rng.random() < 0.5:
                drafts[name] = [1] * rng.randint(0, most_drafts)
        rows = list(dict.fromkeys(row.request_id for row in engine.step(plan, drafts=drafts).rows))
        fed = {name: count + len(drafts.get(name, ())) for name, count in plan.items()}
        assert rows == sort_batch_req_ids(fed, drafts, most_drafts + 1)


def random_params(rng: random.Random, greedy: bool) -> SamplingParams:
    return SamplingParams(
        temperature=0.0 if greedy else rng.choice([0.5, 1.0, 2.0]),
        top_k=rng.choice([0, 0, 1, 5, 50]),
        top_p=rng.choice([1.0, 1.0, 0.5, 0.95]),
        min_p=rng.choice([0.0, 0.0, 0.1]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.5, 0.7]),
        frequency_penalty=rng.choice([0.0, 0.0, 0.8, -0.5]),
        presence_penalty=rng.choice([0.0, 0.0, 1.1]),
        logit_bias=rng.choice([None, None, {3: 5.0, 200: -4.0}]),
        allowed_token_ids=rng.choice([None, None, None, list(range(40, 90))]),
        min_tokens=rng.choice([0, 0, 6]),
        stop_token_ids=[rng.randrange(VOCAB) for _ in range(rng.randint(0, 3))],
        max_tokens=50,
    )


class Halve(v1.LogitsProcessor):
    """Changes every other logit, so that its place in the order is visible."""

    def __init__(self, invariant: bool) -> None:
        self.invariant = invariant

    def is_argmax_invariant(self) -> bool:
        return self.invariant

    def update_state(self, batch_update: Any) -> None:
        pass

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits[:, ::2] *= 0.5
        return logits


@pytest.mark.parametrize("mix", ["greedy", "random", "mixed"])
def test_v1_sampler_processes_logits_and_picks_greedy_tokens_as_vllms(
    mix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(len(mix))
    size = 12
    config: Any = make_config(max_num_seqs=size, vocab_size=VOCAB)
    source = LogitsSource(VOCAB, seed=2)
    for trial in range(60):
        requests = []
        for i in range(rng.randint(2, size)):
            greedy = {"greedy": True, "random": False, "mixed": i % 2 == 0}[mix]
            params = random_params(rng, greedy)
            params._bad_words_token_ids = rng.choice([None, [[rng.randrange(VOCAB)], [1, 2, 3]]])
            prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 20))]
            outputs = [rng.choice([1, 2, rng.randrange(VOCAB)]) for _ in range(rng.randint(0, 10))]
            requests.append(Request(f"t{trial}.{i}", params, prompt, output_token_ids=outputs))
        builtins = [
            cls(config, CPU, False)
            for cls in (
                vllm_builtin.MinTokensLogitsProcessor,
                vllm_builtin.LogitBiasLogitsProcessor,
                vllm_builtin.MinPLogitsProcessor,
            )
        ]
        theirs = vllm_batch(size, [*builtins, Halve(False), Halve(True)])
        batch, ours = V1Batch(size), V1Sampler([Halve(False), Halve(True)], vocab_size=VOCAB)
        for request in requests:
            theirs.add_request(cached(request))
            batch.add(request)
        theirs.refresh_metadata()
        ours.update(batch.take_update(), batch.requests)
        sampler = Sampler()
        seen: dict[str, torch.Tensor] = {}

        def keep(logits: torch.Tensor, *args: Any, seen: dict[str, torch.Tensor] = seen) -> Any:
            # vLLM masks and samples in one call; stop in between to look at the logits.
            seen["logits"] = vllm_top_k_top_p(logits, *args[1:])
            return logits.argmax(-1), None

        monkeypatch.setattr(sampler.topk_topp_sampler, "forward", keep)
        raw = source.rows([(request.request_id, request.total_len) for request in requests])
        with torch.inference_mode():
            output = sampler(raw.clone(), theirs.sampling_metadata)
            result = ours(raw.clone())
        for row, request in enumerate(requests):
            if request.params.temperature == 0:
                assert int(output.sampled_token_ids[row]) == int(result.token_ids[row])
        if mix != "greedy":
            torch.testing.assert_close(result.logits, seen["logits"], rtol=1e-5, atol=1e-5)


def vllm_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    return apply_top_k_top_p_pytorch(logits.clone(), k, p)


@pytest.mark.needs_release("0.29")
def test_stop_tokens_come_back_where_a_grammar_left_nothing_else() -> None:
    """vLLM's own min-tokens processor and ours, on rows of which a grammar left a few tokens."""
    rng = random.Random(5)
    restored = 0
    for trial in range(200):
        requests, raw = [], torch.full((4, VOCAB), -torch.inf)
        for row in range(4):
            stops = rng.sample(range(8), rng.randint(3, 6))
            grammar = rng.choice([None, object()])
            params = SamplingParams(temperature=0, min_tokens=rng.choice([0, 3]), stop_token_ids=stops, max_tokens=9)
            params.structured_outputs = grammar  # type: ignore[assignment]
            requests.append(Request(f"t{trial}.{row}", params, [1], output_token_ids=[1] * rng.randint(0, 4)))
            left = rng.sample(range(8), rng.randint(1, 3))
            raw[row, left] = torch.rand(len(left))
        theirs = vllm_builtin.MinTokensLogitsProcessor(make_config(max_num_seqs=4, vocab_size=VOCAB), CPU, False)
        batch, ours = V1Batch(4), V1Sampler([], vocab_size=VOCAB)
        for request in requests:
            batch.add(request)
        update = batch.take_update()
        theirs.update_state(update)
        ours.update(update, batch.requests)
        expected = theirs.apply(raw.clone())
        assert torch.equal(ours(raw.clone()).logits, expected)
        for row, request in enumerate(requests):
            held = len(request.output_token_ids) < request.params.min_tokens
            stops = list(request.params.all_stop_token_ids)
            restored += held and bool(expected[row, stops].isfinite().any())
    assert restored > 20
