"""Dynamo's specifications reach the engine by way of the request, and its counting processors count tokens."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

import lpkit
import pytest
import torch
from lpkit import dynamo
from lpkit.runtime import Request, Scheduler, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from sdk_hosts import V1Host, V2Host, logits_of, params

SPEC = dynamo.LogitsProcessorSpec((dynamo.ForcedTokenSequenceSpec((5, 6, 7), 2),))
SENT = [{"kind": "forced_sequence", "token_ids": [5, 6, 7], "eos_token_id": 2}]


class Role(Enum):
    """An enum like Dynamo's DisaggregationMode."""

    AGGREGATED = "agg"
    PREFILL = "prefill"
    DECODE = "decode"
    ENCODE = "encode"


def test_entries_are_for_the_workers_that_generate() -> None:
    assert dynamo.entries_for(SPEC, Role.AGGREGATED) == dynamo.entries_for(SPEC, "decode") == list(SPEC.entries)
    assert dynamo.entries_for(SPEC, Role.PREFILL) == dynamo.entries_for(SPEC, Role.ENCODE) == []
    assert dynamo.entries_for(None, Role.AGGREGATED) == []
    everywhere = dynamo.LogitsProcessorSpec(SPEC.entries, generation_only=False)
    assert dynamo.entries_for(everywhere, Role.PREFILL) == list(SPEC.entries)


def test_activation_leaves_other_arguments_alone_and_shares_nothing() -> None:
    given = {"kv_transfer_params": {"a": 1}}
    one, other = SamplingParams(extra_args=given), SamplingParams()
    dynamo.activate(one, SPEC.entries)
    dynamo.activate(other, SPEC.entries)
    assert one.extra_args == {"kv_transfer_params": {"a": 1}, "dynamo_logits": SENT}
    assert other.extra_args == {"dynamo_logits": SENT}
    assert given == {"kv_transfer_params": {"a": 1}}
    assert other.extra_args["dynamo_logits"][0] is not one.extra_args["dynamo_logits"][0]


def test_without_entries_what_a_client_sent_is_removed() -> None:
    sent = SamplingParams(extra_args={"dynamo_logits": SENT, "other": 1})
    dynamo.activate(sent, [])
    assert sent.extra_args == {"other": 1}


def test_dynamos_own_specifications_are_accepted() -> None:
    request = SamplingParams()
    dynamo.activate(request, [SimpleNamespace(token_ids=(5, 6, 7), eos_token_id=2)])  # type: ignore[list-item]
    assert request.extra_args == {"dynamo_logits": SENT}


def test_a_live_callable_is_refused_with_the_reason() -> None:
    with pytest.raises(TypeError, match="PythonProcessorSpec holds a live Python object, which cannot travel"):
        dynamo.activate(SamplingParams(), [dynamo.PythonProcessorSpec(print)])


def test_a_text_is_tokenized_once() -> None:
    tokenizer = SimpleNamespace(encode=lambda text, add_special_tokens: [ord(c) for c in text], eos_token_id=2)
    entry = dynamo.ForcedTokenSequenceSpec((72, 105), 2)
    assert dynamo.forced_text("Hi", tokenizer) == dynamo.LogitsProcessorSpec((entry,))


IDS, EOS = list(range(40, 60)), 3


class CountingForcer:
    """Written as Dynamo's examples are: counts its calls, overwrites every logit."""

    def __init__(self) -> None:
        self.state = 0

    def __call__(self, input_ids: Sequence[int], logits: torch.Tensor) -> None:
        token = IDS[self.state] if self.state < len(IDS) else EOS
        logits.fill_(-torch.inf)
        logits[token] = 0.0
        self.state += 1


class Forced(dynamo.DynamoLogitsProcessor):
    class Params(lpkit.Params):
        forced: bool

    def new_processors(self, params: Any) -> list[dynamo.BaseLogitsProcessor]:
        return [CountingForcer()] if params.forced else []


@pytest.mark.parametrize("engine", [V1Engine, V2Engine])
def test_a_counting_processor_survives_partial_prefills_and_preemption(engine: Any) -> None:
    scheduler = Scheduler(
        engine([Forced], device="cpu"), num_blocks=14, block_size=4, new_lists=True, max_num_batched_tokens=8
    )
    for i in range(4):
        params = SamplingParams(temperature=0.0, extra_args={"forced": i < 3})
        scheduler.submit(Request(f"r{i}", params, [5] * (6 + 5 * i), max_tokens=24))
    scheduler.run()
    assert scheduler.num_preemptions > 0
    for i in range(3):
        assert scheduler.finished[f"r{i}"].output_token_ids == [*IDS, *[EOS] * 4]
    assert scheduler.finished["r3"].output_token_ids[:3] != IDS[:3]


def test_rejected_drafts_are_not_counted() -> None:
    host = V2Host(Forced, vocab_size=64)
    host.add(0, params(forced=True), [1], [40, 41])
    for drafts in ([42, 43], [9], []):  # none of them is kept
        rows = len(drafts) + 1
        result = host.apply(logits_of(rows, 64), host.context([0], {0: drafts}))
        assert result.argmax(1).tolist() == [42, 43, 44][:rows]


def test_a_masked_token_is_not_revived_and_a_token_is_always_left() -> None:
    host = V1Host(Forced, vocab_size=64)
    host.update(1, added=[(0, params(forced=True), [1], [])])
    logits = logits_of(1, 64)
    logits[0, 40] = -torch.inf
    assert torch.equal(host.apply(logits.clone()), logits)
