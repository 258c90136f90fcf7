"""V1's calls of processors, and what a processor may return; ``tests/engine`` compares its stages with vLLM's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lpkit.runtime import LogitsSource, Request, V1Batch, V1Sampler

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
