"""Processors on V1 whose requests move, grow, lose tokens and wait for some, against the batch itself."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from lpkit.runtime import Request
from lpkit.v1 import BatchUpdate
from machines import STEADY, V1Traffic
from sdk_hosts import VOCAB, V1Host, logits_of
from sdk_plugins import Add, Weigh, weighed

TOKENS = st.integers(0, VOCAB - 1)
PLACEHOLDER = -1


class Batches(V1Traffic):
    """One processor has a value per request, the other reads token ids."""

    def begin(self, size: int) -> None:
        self.add, self.weigh = V1Host(Add, size), V1Host(Weigh, size)

    def follow(self, update: BatchUpdate) -> None:
        with torch.inference_mode():
            self.add.processor.update_state(update)
            self.weigh.processor.update_state(update)

    @precondition(lambda self: len(self.batch))
    @rule(data=st.data(), tokens=st.lists(TOKENS, min_size=1, max_size=3), waits=st.booleans())
    def grow(self, data: st.DataObject, tokens: list[int], waits: bool) -> None:
        """Asynchronous scheduling leaves a placeholder behind the tokens, which the next growth repairs."""
        output = data.draw(st.sampled_from(self.batch.requests)).output_token_ids
        if output[-1:] == [PLACEHOLDER]:
            output.pop()
        output += tokens + [PLACEHOLDER] * waits

    @precondition(lambda self: len(self.batch))
    @rule(data=st.data(), left=st.integers(0, 3))
    def take_back(self, data: st.DataObject, left: int) -> None:
        del data.draw(st.sampled_from(self.batch.requests)).output_token_ids[left:]

    @invariant()
    def each_row_is_edited_for_its_request(self) -> None:
        logits = logits_of(len(self.batch))
        for row, result in enumerate(self.add.apply(logits.clone())):
            assert torch.equal(result, logits[row] + self.argument(row, "add"))
        for row, result in enumerate(self.weigh.apply(logits.clone())):
            request = self.batch.requests[row]
            waits = PLACEHOLDER in request.output_token_ids
            expected = logits[row]
            if self.argument(row, "weigh") and not waits:
                expected = weighed(expected, request.prompt_token_ids or [], request.output_token_ids)
            assert torch.equal(result, expected)

    def argument(self, row: int, name: str) -> float:
        request: Request = self.batch.requests[row]
        return float((request.params.extra_args or {}).get(name, 0.0))


class TestBatches(Batches.TestCase):
    settings = STEADY
