"""lpkit-forced-sequence against the sequence itself, on the reference runtime too, and transformers' forced tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit import dynamo
from lpkit.runtime import Request, Scheduler, V1AsyncEngine, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_forced_sequence import ForcedSequence
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import VOCAB, logits_of

SEQUENCES = [[5], [0, 3, 0, 31], list(range(20)), [7] * 9]


@ON_EVERY_HOST
def test_it_leaves_the_token_that_is_due(applied: Applied) -> None:
    for n in range(22):
        asked = [Asked({"forced_sequence": ids, "forced_sequence_end": 1}, output=[9] * n) for ids in SEQUENCES]
        asked += [Asked({"forced_sequence": SEQUENCES[0]}, output=[9] * n), Asked(None, output=[9] * n)]
        logits = logits_of(len(asked), seed=n)
        result = applied(ForcedSequence, logits, asked)
        for row, ids in enumerate(SEQUENCES):
            expected = torch.full((VOCAB,), -torch.inf)
            due = [*ids, *[1] * 22][n]
            expected[due] = logits[row, due]
            agree(result[row], expected, "the sequence itself")
        assert torch.equal(result[-2], logits[-2]) == (n > 0)
        assert torch.equal(result[-1], logits[-1])


@ON_EVERY_HOST
def test_one_token_is_what_transformers_forces_first(applied: Applied, transformers_rules: Any) -> None:
    logits = logits_of(1)
    result = applied(ForcedSequence, logits, [Asked({"forced_sequence": [6]})])
    forced = transformers_rules.ForcedBOSTokenLogitsProcessor(6)(torch.zeros(1, 1), logits)
    agree(result.softmax(-1), forced.softmax(-1), "transformers' ForcedBOSTokenLogitsProcessor", "shares")


@pytest.mark.parametrize("engine", [V1Engine, V1AsyncEngine, V2Engine])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_request_that_is_preempted_in_mid_sequence_goes_on_where_it_was(engine: Any, temperature: float) -> None:
    scheduler = Scheduler(engine([ForcedSequence], device="cpu"), num_blocks=9, block_size=4, new_lists=True)
    sequences = {f"r{i}": [(i * 31 + 7 * k) % 512 for k in range(10 + i)] for i in range(5)}
    for name, ids in sequences.items():
        args = {"forced_sequence": ids, "forced_sequence_end": 3}
        params = SamplingParams(temperature=temperature, extra_args=args)
        scheduler.submit(Request(name, params, [5] * 6, max_tokens=18))
    scheduler.run()
    assert scheduler.num_preemptions > 0
    for name, ids in sequences.items():
        assert scheduler.finished[name].output_token_ids == [*ids, *[3] * 18][:18]


@pytest.mark.parametrize("engine", [V1Engine, V2Engine])
def test_disaggregated_the_reply_is_the_prefill_workers_token_and_then_the_sequence(engine: Any) -> None:
    spec = dynamo.LogitsProcessorSpec((dynamo.ForcedTokenSequenceSpec((40, 41, 42), 3),))

    def reply(role: str, prompt: list[int], max_tokens: int) -> list[int]:
        params = SamplingParams(temperature=0.0)
        dynamo.activate(params, dynamo.entries_for(spec, role))
        scheduler = Scheduler(engine([ForcedSequence], device="cpu"))
        scheduler.submit(Request("r", params, prompt, max_tokens))
        return scheduler.run()["r"]

    leading = reply("prefill", [5] * 6, 1)
    assert leading not in ([40], [3])
    assert reply("decode", [*[5] * 6, *leading], 5) == reply("agg", [5] * 6, 5) == [40, 41, 42, 3, 3]
