"""A request's steps, in their order; `tests/sdk/rules` compares every rule with its own processor."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_rules import Rules


def edited(steps: list[dict[str, Any]], logits: list[float], temperature: float = 1.0) -> list[float]:
    processor = Rules(make_config(max_num_seqs=4, vocab_size=len(logits)), torch.device("cpu"), False)
    asked = SamplingParams(temperature=temperature, extra_args={"rules": json.dumps(steps)})
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[(0, asked, [1, 2], [0])], moved=[]))
    result: list[float] = processor.apply(torch.tensor([logits]))[0].tolist()
    return result


def test_steps_act_in_the_order_of_the_document() -> None:
    bias = {"rule": "bias", "ids": [0], "values": [3.0]}
    penalty = {"rule": "penalties", "repetition": 2.0}
    assert edited([bias, penalty], [1.0, 0.0, 0.0, 0.0]) == [2.0, 0.0, 0.0, 0.0]
    assert edited([penalty, bias], [1.0, 0.0, 0.0, 0.0]) == [3.5, 0.0, 0.0, 0.0]


def test_a_step_acts_when_it_should() -> None:
    ban = {"rule": "ban", "phrases": [3]}
    assert edited([{**ban, "when": {"from": 2}}], [0.0] * 4)[3] == 0.0
    assert edited([{**ban, "when": {"from": 1}}], [0.0] * 4)[3] == -math.inf


def test_a_greedy_request_skips_rules_about_what_is_sampled() -> None:
    steps = [{"rule": "min_p", "threshold": 0.9}, {"rule": "bias", "ids": [1], "values": [1.0]}]
    assert edited(steps, [4.0, 0.0, 0.0, 0.0], temperature=0.0) == [4.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ("[{]", "rules/:"),
        ('[{"rule": "min_q"}]', "rules/0/rule"),
        ('[{"rule": "min_p"}]', "rules/0: min_p needs threshold"),
        ('[{"rule": "min_p", "threshold": 1.5}]', "rules/0/threshold"),
        ('[{"rule": "ban", "phrases": [1], "when": {"form": 3}}]', "rules/0/when/form: unknown; did you mean 'from'"),
    ],
)
def test_a_wrong_document_is_refused_with_a_pointer(document: str, pointer: str) -> None:
    with pytest.raises(ValueError, match=pointer):
        Rules.validate_params(SamplingParams(extra_args={"rules": document}))
