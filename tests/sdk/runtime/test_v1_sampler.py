"""V1's stage order, what greedy requests skip, and what a processor may return."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lpkit.runtime import LogitsSource, Request, V1Batch, V1Sampler
from lpkit.runtime.sampler import stages

VOCAB = 128


def run(sampler: V1Sampler, *requests: Request) -> tuple[torch.Tensor, Any]:
    batch = V1Batch(16)
    for request in requests:
        batch.add(request)
    sampler.update(batch.take_update(), batch.requests)
    raw = LogitsSource(VOCAB).rows([(request.request_id, request.total_len) for request in requests])
    return raw, sampler(raw.clone())


def logged(calls: list[Any]) -> list[tuple[str, str]]:
    return [(name, what) for name, what, _ in calls]


def test_update_reaches_the_argmax_invariant_processors_first(
    v1_recorder: Any, make_request: Callable[..., Request]
) -> None:
    calls: list[Any] = []
    processors = [v1_recorder(name, calls, invariant) for name, invariant in (("a", 0), ("b", 1), ("c", 0))]
    run(V1Sampler(processors, vocab_size=VOCAB), make_request("r", temperature=1.0))
    assert logged(calls)[:3] == [("b", "update"), ("a", "update"), ("c", "update")]
    assert logged(calls)[3:] == [("a", "apply"), ("c", "apply"), ("b", "apply")]


def test_an_all_greedy_batch_skips_argmax_invariant_processors(
    v1_recorder: Any, make_request: Callable[..., Request]
) -> None:
    calls: list[Any] = []
    processors = [v1_recorder("logits", calls), v1_recorder("sampling", calls, True)]
    raw, sampled = run(V1Sampler(processors, vocab_size=VOCAB), make_request("a"), make_request("b"))
    assert logged(calls)[2:] == [("logits", "apply")]
    assert torch.equal(sampled.token_ids, raw.argmax(-1)) and torch.equal(sampled.logits, raw)


def test_greedy_rows_of_a_mixed_batch_ignore_argmax_invariant_processors(
    v1_recorder: Any, make_request: Callable[..., Request]
) -> None:
    only_nine = v1_recorder(
        invariant=True, edit=lambda x: torch.full_like(x, -math.inf).index_fill_(1, torch.tensor([9]), 0.0)
    )
    requests = [make_request("g"), make_request("r", temperature=1.0)]
    raw, sampled = run(V1Sampler([only_nine], vocab_size=VOCAB), *requests)
    assert sampled.token_ids.tolist() == [int(raw[0].argmax()), 9]


def test_custom_processors_see_bias_and_masks_but_neither_penalties_nor_temperature(
    v1_recorder: Any, make_request: Callable[..., Request]
) -> None:
    calls: list[Any] = []
    request = make_request(
        "r",
        outputs=3,
        temperature=0.5,
        repetition_penalty=2.0,
        presence_penalty=1.0,
        logit_bias={5: 2.0, 6: -1.0},
        min_tokens=5,
        stop_token_ids=[7, 8],
        allowed_token_ids=list(range(100)),
    )
    raw, sampled = run(V1Sampler([v1_recorder("p", calls)], vocab_size=VOCAB), request)
    expected = raw.clone()
    expected[:, 100:] = -math.inf
    expected[:, [7, 8]] = -math.inf
    expected[:, 5] += 2
    expected[:, 6] -= 1
    assert torch.equal(calls[1][2], expected)
    prompt = stages.token_counts([request.prompt_token_ids or []], VOCAB, raw.device) > 0
    output = stages.token_counts([[0, 1, 2]], VOCAB, raw.device)
    penalised = stages.apply_penalties(
        expected, prompt, output, torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([1.0])
    )
    assert torch.equal(sampled.logits, penalised / 0.5)


def test_sampling_processors_see_temperature_and_min_p_but_not_top_k(
    v1_recorder: Any, make_request: Callable[..., Request]
) -> None:
    calls: list[Any] = []
    raw, sampled = run(
        V1Sampler([v1_recorder("p", calls, True)], vocab_size=VOCAB),
        make_request("r", temperature=2.0, min_p=0.05, top_k=3),
    )
    expected = stages.min_p_of_probabilities(raw / 2, torch.tensor([0.05]))
    assert torch.equal(calls[1][2], expected)
    assert sampled.logits.isfinite().sum() == 3 < expected.isfinite().sum()


def test_the_argmax_is_taken_after_penalties(make_request: Callable[..., Request]) -> None:
    request = make_request("r", frequency_penalty=2.0)
    best = int(run(V1Sampler(vocab_size=VOCAB), request)[1].token_ids)
    request.output_token_ids.extend([best] * 20)
    batch = V1Batch(1)
    batch.add(request)
    sampler = V1Sampler(vocab_size=VOCAB)
    sampler.update(batch.take_update(), batch.requests)
    raw = LogitsSource(VOCAB).rows([("r", 4)])
    assert int(raw.argmax()) == best != int(sampler(raw).token_ids)


def test_stop_tokens_are_held_back_until_min_tokens_are_out(make_request: Callable[..., Request]) -> None:
    sampler = V1Sampler(vocab_size=VOCAB)
    request = make_request("r", outputs=1, min_tokens=2, stop_token_ids=[3])
    batch = V1Batch(1)
    batch.add(request)
    sampler.update(batch.take_update(), batch.requests)
    assert sampler(torch.zeros(1, VOCAB)).logits[0, 3] == -math.inf
    request.output_token_ids.append(1)
    sampler.update(None, batch.requests)
    assert sampler(torch.zeros(1, VOCAB)).logits[0, 3] == 0


def test_bad_words_are_banned_only_behind_their_beginning(make_request: Callable[..., Request]) -> None:
    request = make_request("r", outputs=3)
    request.params._bad_words_token_ids = [[9], [1, 2, 10], [0, 2, 11], [5, 0, 1, 2, 12]]
    _, sampled = run(V1Sampler(vocab_size=VOCAB), request)
    assert sampled.logits[0].isneginf().nonzero().flatten().tolist() == [9, 10]


def test_a_seed_decides_the_tokens_whatever_the_request_is_called(make_request: Callable[..., Request]) -> None:
    flat = torch.zeros(4, VOCAB)
    requests = [make_request(n, temperature=1.0, seed=s) for n, s in (("a", 7), ("bb", 7), ("c", 8), ("d", None))]
    batch = V1Batch(4)
    for request in requests:
        batch.add(request)
    for engine_seed in (0, 1):
        sampler = V1Sampler(vocab_size=VOCAB, seed=engine_seed)
        sampler.update(None, [])
        sampler._options = sampler._options.of(requests, VOCAB, sampler.device)
        tokens = sampler(flat.clone()).token_ids.tolist()
        assert tokens[0] == tokens[1] != tokens[2]
    assert len(set(tokens)) == 3


def test_a_processor_may_return_another_tensor_and_get_padded_logits(
    v1_recorder: Any, make_request: Callable[..., Request]
) -> None:
    request = make_request("r", temperature=1.0, top_p=0.5, repetition_penalty=1.5, logit_bias={1: 1.0})
    batch = V1Batch(1)
    batch.add(request)
    sampler = V1Sampler([v1_recorder(edit=lambda x: x + 1)], vocab_size=VOCAB)
    sampler.update(batch.take_update(), batch.requests)
    raw = LogitsSource(VOCAB).rows([("r", 0)])
    wide = torch.nn.functional.pad(raw, (0, 64))[:, :VOCAB]
    expected, padded = sampler(raw.clone()), sampler(wide)
    assert torch.equal(expected.logits, padded.logits) and torch.equal(expected.token_ids, padded.token_ids)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda x: None, "NoneType"),
        (lambda x: x[:1], "shape"),
        (lambda x: x.half(), "dtype"),
        (lambda x: x.tolist(), "list"),
    ],
)
def test_what_cannot_replace_the_logits_fails_the_step(
    v1_recorder: Any, make_request: Callable[..., Request], edit: Any, complaint: str
) -> None:
    with pytest.raises(TypeError, match=f"V1Recorder.*{complaint}"):
        run(V1Sampler([v1_recorder(edit=edit)], vocab_size=VOCAB), make_request("a"), make_request("b"))
