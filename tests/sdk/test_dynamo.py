"""Dynamo's specifications reach the engine by way of the request, and its counting processors count tokens."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace

import pytest
from lpkit import dynamo
from lpkit.sampling_params import SamplingParams

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
