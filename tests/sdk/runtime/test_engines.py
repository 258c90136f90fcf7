"""Both engines: what a request's logits depend on, and what steps do with requests."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lpkit import v1, v2
from lpkit.runtime import Engine, LogitsSource, Request, Scheduler, V1Engine, V2Engine, generate
from lpkit.sampling_params import SamplingParams

ENGINES: dict[str, type[Engine]] = {"v1": V1Engine, "v2": V2Engine}
BOTH = pytest.mark.parametrize("runner", ["v1", "v2"])


@BOTH
def test_a_request_gets_the_same_logits_and_tokens_next_to_any_neighbours(
    runner: str, make_request: Callable[..., Request]
) -> None:
    options: list[dict[str, Any]] = [
        {},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1.0},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.4},
        {"temperature": 1.2, "min_p": 0.02, "seed": 5, "top_k": 40},
        {"logit_bias": {3: 4.0}, "min_tokens": 4, "stop_token_ids": [3]},
        {"allowed_token_ids": list(range(50, 90))},
    ]

    def collect(names: list[int], **scheduling: Any) -> tuple[dict[Any, Any], dict[str, list[int]]]:
        scheduler = Scheduler(ENGINES[runner](device="cpu", vocab_size=128, max_num_seqs=4), **scheduling)
        for i in names:
            request = make_request(f"r{i}", prompt=3 + 2 * i, max_tokens=12, **options[i % len(options)])
            scheduler.submit(request, at_step=i // 3)
        seen: dict[Any, Any] = {}
        while scheduler.unfinished:
            result = scheduler.step()
            if result.raw is None or result.processed is None:
                continue
            for row, *logits in zip(result.rows, result.raw, result.processed, strict=True):
                if not row.discarded:
                    seen[row.request_id, row.position] = logits
        return seen, {name: request.output_token_ids for name, request in scheduler.finished.items()}

    crowd, crowd_outputs = collect(list(range(14)), max_num_batched_tokens=23, num_blocks=9, block_size=8)
    for i in range(14):
        name = f"r{i}"
        alone, outputs = collect([i])
        assert outputs == {name: crowd_outputs[name]}
        # V1 runs the sampling stages on the greedy rows of mixed batches too.
        comparable = runner == "v2" or options[i % len(options)].get("temperature")
        for key, (raw, processed) in alone.items():
            assert torch.equal(raw, crowd[key][0])
            if comparable:
                torch.testing.assert_close(processed, crowd[key][1], rtol=1e-6, atol=1e-6)


def test_both_runners_produce_the_same_tokens() -> None:
    rng = random.Random(0)
    prompts = [[rng.randrange(512) for _ in range(rng.randint(1, 60))] for _ in range(24)]
    params = [
        SamplingParams(
            temperature=rng.choice([0.0, 0.0, 0.7, 1.0]),
            top_k=rng.choice([0, 0, 10]),
            min_p=rng.choice([0.0, 0.05]),
            repetition_penalty=rng.choice([1.0, 1.2]),
            logit_bias=rng.choice([None, {5: 3.0}]),
            seed=rng.choice([None, 1]),
            stop_token_ids=[5],
            max_tokens=rng.randint(1, 25),
        )
        for _ in prompts
    ]
    first = generate(prompts, params, runner="v1", device="cpu", max_num_batched_tokens=64)
    second = generate(
        prompts, params, runner="v2", device="cpu", max_num_batched_tokens=37, num_blocks=30, block_size=8
    )
    assert first == second


@BOTH
def test_a_partial_prefill_commits_nothing_and_moves_the_position(
    runner: str, make_request: Callable[..., Request]
) -> None:
    engine = ENGINES[runner](device="cpu")
    request = make_request("r", prompt=10)
    engine.add(request)
    for fed, position in ((4, 3), (3, 6)):
        result = engine.step(partial={"r": fed})
        assert result.rows == (("r", position, True),) and result.tokens == {} and not request.output_token_ids
    result = engine.step()
    assert result.rows == (("r", 9, False),) and result.tokens == {"r": request.output_token_ids}
    assert engine.step().rows == (("r", 10, False),)
    with pytest.raises(ValueError, match="tokens left"):
        engine.step(partial=["r"])


@BOTH
def test_forced_tokens_are_committed_instead_of_the_sampled_ones(
    runner: str, make_request: Callable[..., Request]
) -> None:
    engine = ENGINES[runner](device="cpu")
    for name in "ab":
        engine.add(make_request(name))
    result = engine.step(force={"a": 99})
    assert result.tokens["a"] == [99] == engine.requests["a"].output_token_ids
    assert result.sampled is not None and result.tokens["b"] == [int(result.sampled[1])]


@BOTH
def test_processors_run_under_inference_mode_and_are_built_outside_it(
    runner: str, make_request: Callable[..., Request]
) -> None:
    seen: list[bool] = []

    class V1(v1.LogitsProcessor):
        def __init__(self, config: Any, device: torch.device, is_pin_memory: bool) -> None:
            assert config.scheduler_config.max_num_seqs == 3 and config.model_config.get_vocab_size() == 128
            seen.append(torch.is_inference_mode_enabled())

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update: Any) -> None:
            seen.append(torch.is_inference_mode_enabled())

        def apply(self, logits: torch.Tensor) -> torch.Tensor:
            seen.append(torch.is_inference_mode_enabled())
            return logits

    class V2(v2.LogitsProcessor):
        def __init__(self, config: Any, req_states: Any) -> None:
            assert config.scheduler_config.max_num_seqs == 3 and req_states.vocab_size == 128
            seen.append(torch.is_inference_mode_enabled())

        def apply_staged_writes(self) -> None:
            seen.append(torch.is_inference_mode_enabled())

        def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
            seen.append(torch.is_inference_mode_enabled())
            return logits

    engine = ENGINES[runner](
        [{"v1": V1, "v2": V2}[runner]],
        device="cpu",
        max_num_seqs=3,
        vocab_size=128,  # type: ignore[call-arg]
    )
    engine.add(make_request("r"))
    engine.step()
    assert seen == [False, True, True]


@BOTH
def test_an_aborted_id_may_come_back_in_the_same_step(runner: str, make_request: Callable[..., Request]) -> None:
    engine = ENGINES[runner](device="cpu")
    for name in "ab":
        engine.add(make_request(name))
    engine.step()
    engine.finish("a")
    again = make_request("a", prompt=6)
    engine.add(again)
    result = engine.step()
    assert ("a", 5, False) in result.rows and len(again.output_token_ids) == 1


@BOTH
def test_impossible_calls_are_refused(runner: str, make_request: Callable[..., Request]) -> None:
    engine = ENGINES[runner](device="cpu", max_num_seqs=2, max_model_len=16)
    engine.add(make_request("a"))
    with pytest.raises(ValueError, match="running already"):
        engine.add(make_request("a"))
    with pytest.raises(ValueError, match="no room"):
        engine.add(make_request("long", prompt=16))
    with pytest.raises(ValueError, match="not preempted"):
        engine.resume("a")
    engine.add(make_request("b"))
    with pytest.raises(ValueError, match="full"):
        engine.add(make_request("c"))
    with pytest.raises(ValueError, match="cannot be scheduled"):
        engine.step({"z": 1})
    with pytest.raises(ValueError, match="cannot be scheduled"):
        engine.step(partial=["z"])
    with pytest.raises(ValueError, match="cannot feed"):
        engine.step({"a": 5})


def test_the_source_decides_vocabulary_and_device() -> None:
    engine = V1Engine((), LogitsSource(256, seed=4, device="cpu"))
    assert engine.vocab_size == 256 and engine.device == torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@BOTH
def test_a_gpu_gives_the_tokens_of_the_cpu(runner: str) -> None:
    prompts = [list(range(1, n)) for n in (5, 40, 9)]
    params = SamplingParams(temperature=0.8, top_k=20, repetition_penalty=1.1, max_tokens=20)
    outputs = [generate(prompts, params, runner=runner, device=device) for device in ("cpu", "cuda")]
    assert outputs[0] == outputs[1]


class Refuses:
    """Wants nobody who asks for it."""

    @classmethod
    def validate_params(cls, params: Any) -> None:
        if (params.extra_args or {}).get("refuse"):
            raise ValueError("not this one")

    def __init__(self, *arguments: Any) -> None: ...

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None: ...

    def add_request(self, slot: int, params: Any) -> bool:
        return True

    def apply_staged_writes(self) -> None: ...

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        return logits


@BOTH
def test_a_processor_that_refuses_a_request_keeps_it_out_and_nobody_else(runner: str) -> None:
    engine = ENGINES[runner]([Refuses], device="cpu", vocab_size=128)
    with pytest.raises(ValueError, match="not this one"):
        engine.add(Request("a", SamplingParams(extra_args={"refuse": True}), [1]))
    engine.add(Request("b", SamplingParams(), [1]))
    assert list(engine.step().tokens) == ["b"]
