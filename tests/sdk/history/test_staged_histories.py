"""Processors on V1 whose requests move, grow, lose tokens and wait for some, against the batch itself."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from lpkit.runtime import Request
from lpkit.v1 import BatchUpdate
from machines import STEADY, V1Traffic
from sdk_hosts import VOCAB, V1Host, logits_of
from sdk_plugins import Add, Calls, Weigh, weighed

TOKENS = st.integers(0, VOCAB - 1)
PLACEHOLDER = -1


class Batches(V1Traffic):
    """Processors with a value per request, with token ids, and with both in a callable per request."""

    def begin(self, size: int) -> None:
        self.hosts = self.add, self.weigh, self.calls = [V1Host(cls, size) for cls in (Add, Weigh, Calls)]

    def follow(self, update: BatchUpdate) -> None:
        with torch.inference_mode():
            for host in self.hosts:
                host.processor.update_state(update)

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
        edited = self.weigh.apply(logits.clone()), self.calls.apply(logits.clone())
        for row, results in enumerate(zip(*edited, strict=True)):
            request = self.batch.requests[row]
            waits = PLACEHOLDER in request.output_token_ids
            expected = weighed(logits[row], request.prompt_token_ids or [], request.output_token_ids)
            add = self.argument(row, "add")
            assert torch.equal(results[0], expected if self.argument(row, "weigh") and not waits else logits[row])
            assert torch.equal(results[1], expected + add if add and not waits else logits[row])

    def argument(self, row: int, name: str) -> float:
        request: Request = self.batch.requests[row]
        return float((request.params.extra_args or {}).get(name, 0.0))


class TestBatches(Batches.TestCase):
    settings = STEADY
