"""Whole responses in one call of ``lpkit.train``, against the reference engines, which went token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lpkit
import lpkit.train
import pytest
import torch
from lpkit.runtime import Engine, Request, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from shipped import PLUGINS, load, settings

VOCAB = 512
RESPONSE = 24
STAGES = {"temperature": 0.7, "top_p": 0.95, "repetition_penalty": 1.2, "presence_penalty": 0.3, "min_p": 0.001}


OF_EACH_PLUGIN = [pytest.param(load(plugin), settings(plugin).cases, id=plugin.name) for plugin in PLUGINS]
"""Class and cases."""


def rollout(engine: Engine, request: Request, forced: list[int]) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """A response, and the raw and the processed logits of its tokens."""
    engine.add(request)
    raw, processed = [], []
    for step in range(RESPONSE):
        result = engine.step(force={request.request_id: forced[step]} if step < len(forced) else None)
        raw.append(result.raw[0].clone())
        processed.append(result.processed[0].clone())
    return request.output_token_ids, torch.stack(raw), torch.stack(processed)


def sampled(cls: type[Any], cases: Sequence[dict[str, Any]], runner: str) -> tuple[list[SamplingParams], Any, Any]:
    """Requests with all cases, greedy and sampled, and a request without a case; their prompts and outputs."""
    wanted = [
        *({"extra_args": case["extra_args"], "temperature": 0.8} for case in cases),
        {"extra_args": cases[0]["extra_args"], **STAGES},
        {"extra_args": cases[-1]["extra_args"], "temperature": 0.0, "frequency_penalty": 0.5},
        {"temperature": 0.9, "top_k": 50},
    ]
    params = [SamplingParams(**options) for options in wanted]
    prompts = [[11, 4, 5, 4, 200 + n, *(cases[n % len(cases)].get("prompt_token_ids", []))] for n in range(len(params))]
    found = []
    for n, (options, prompt) in enumerate(zip(params, prompts, strict=True)):
        engine = (V2Engine if runner == "v2" else V1Engine)([cls], vocab_size=VOCAB)
        forced = cases[n].get("output_token_ids", []) if n < len(cases) else []
        found.append(rollout(engine, Request(str(n), options, prompt), forced))
    return params, prompts, found


@pytest.mark.parametrize("runner", ["v2", pytest.param("v1", marks=pytest.mark.broad)])
@pytest.mark.parametrize(("cls", "cases"), OF_EACH_PLUGIN)
def test_a_response_in_one_call_is_bit_equal_to_token_by_token(
    cls: type[Any], cases: Sequence[dict[str, Any]], runner: Any
) -> None:
    params, prompts, found = sampled(cls, cases, runner)
    responses = [response for response, _, _ in found]
    raw = torch.cat([rows for _, rows, _ in found])
    given = raw.clone()
    for chunk_bytes in (2**26, 7 * 4 * VOCAB):
        (ours, _) = lpkit.train.processed_logits(
            cls, None, prompts, responses, given, sampling=params, runner=runner, forbidden="mask",
            chunk_bytes=chunk_bytes,
        )  # fmt: skip
        theirs = torch.cat([rows for _, _, rows in found])
        assert torch.equal(ours, theirs)
    assert torch.equal(given, raw)
    assert not torch.equal(theirs, raw)


@pytest.mark.parametrize(("cls", "cases"), OF_EACH_PLUGIN)
def test_every_plugin_gives_finite_gradients_of_what_it_gives_without(
    cls: type[Any], cases: Sequence[dict[str, Any]]
) -> None:
    """Plain operations replace the fast operations where autograd follows: values and kept tokens stay the same."""
    torch.manual_seed(4)
    logits = torch.randn(12, VOCAB).mul_(3)
    response = logits.argmax(-1).tolist()
    for case in cases:
        wanted = {"sampling": SamplingParams(temperature=0.7, extra_args=case["extra_args"]), "forbidden": "mask"}
        plain, mask = lpkit.train.processed_logprobs(cls, None, [4, 5, 4], response, logits, **wanted)
        leaf = logits.clone().requires_grad_()
        followed, _ = lpkit.train.processed_logprobs(cls, None, [4, 5, 4], response, leaf, **wanted)
        assert torch.equal(plain, followed)
        followed.sum().backward()
        assert leaf.grad is not None and bool(leaf.grad.isfinite().all())
        # The softmax of what is sampled from, less the token: nothing for tokens that are ruled out.
        processed, _ = lpkit.train.processed_logits(cls, None, [4, 5, 4], response, logits, **wanted)
        assert not leaf.grad[processed.isneginf()].any()
        assert not leaf.grad[mask].any()
