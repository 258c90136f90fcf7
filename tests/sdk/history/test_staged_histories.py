"""Processors on V1 whose requests move, grow, lose tokens and wait for some, against the batch itself."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from lpkit.v1 import BatchUpdate
from machines import STEADY, V1Traffic
from sdk_hosts import VOCAB, V1Host, logits_of
from sdk_plugins import Add, AddInPlace, Calls, Lengths, Weigh, weighed

TOKENS = st.integers(0, VOCAB - 1)
PLACEHOLDER = -1


class Measures(Lengths):
    Params = Weigh.Params


class Batches(V1Traffic):
    """Processors with a value per request, with lengths, with token ids, and with all in a callable per request."""

    def begin(self, size: int) -> None:
        self.hosts = [V1Host(cls, size) for cls in (Add, AddInPlace, Measures, Weigh, Calls)]

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
        edited = [host.apply(logits.clone()) for host in self.hosts]
        for row, request in enumerate(self.batch.requests):
            prompt, output = request.prompt_token_ids or [], request.output_token_ids
            add, weighs, waits = self.argument(row, "add"), self.argument(row, "weigh"), PLACEHOLDER in output
            expected = weighed(logits[row], prompt, output)
            lengths = torch.tensor([len(prompt), len(prompt) + len(output), len(output)])
            wanted = [
                *[logits[row] + add] * 2,
                torch.cat((lengths, logits[row, 3:])) if weighs else logits[row],
                expected if weighs and not waits else logits[row],
                expected + add if add and not waits else logits[row],
            ]
            assert all(torch.equal(results[row], each) for results, each in zip(edited, wanted, strict=True))

    def argument(self, row: int, name: str) -> float:
        return float((self.batch.requests[row].params.extra_args or {}).get(name, 0.0))


class TestBatches(Batches.TestCase):
    settings = STEADY
