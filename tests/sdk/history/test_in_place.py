"""Histories on V2, read on the device and brought to the host, against plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from lpkit.history.on_host import HostHistories, V1Row
from lpkit.history.rows import HISTORY_USES
from machines import STEADY
from sdk_hosts import VOCAB, V2Host, logits_of, params
from sdk_plugins import Calls, Weigh, weighed

SLOTS = st.integers(0, 3)
TOKENS = st.integers(0, VOCAB - 1)
LONGEST = 80


@dataclass
class Held:
    """The request in a slot; ``resumed`` is how many outputs it brought."""

    name: str
    wanted: bool
    prompt: list[int]
    output: list[int]
    resumed: int

    @property
    def prefilling(self) -> bool:
        return len(self.output) == self.resumed


class Slots(RuleBasedStateMachine):
    """Requests take slots, grow by tokens and drafts, and lose tokens; a processor and the host's lists follow."""

    @initialize(speculative=st.booleans())
    def start(self, speculative: bool) -> None:
        self.hosts = [V2Host(cls, 4, max_model_len=LONGEST, speculative=speculative) for cls in (Weigh, Calls)]
        self.on_host = {use: HostHistories(self.hosts[0].states, use, speculative) for use in HISTORY_USES}
        self.speculative = speculative
        self.held: dict[int, Held] = {}
        self.born = 0

    @rule(
        slot=SLOTS,
        wanted=st.booleans(),
        prompt=st.lists(TOKENS, min_size=1, max_size=6),
        output=st.lists(TOKENS, max_size=4),
    )
    def enter(self, slot: int, wanted: bool, prompt: list[int], output: list[int]) -> None:
        self.born += 1
        self.held[slot] = Held(f"r{self.born}", wanted, prompt, list(output), len(output))
        asked = params(weigh=True, add=self.born) if wanted else params()
        assert {host.add(slot, asked, prompt, output) for host in self.hosts} == {wanted}
        for lists in self.on_host.values():
            if wanted:
                lists.enter(slot, self.held[slot].name)
            else:
                lists.decline(slot)
        for host in self.hosts:
            host.flush()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), tokens=st.lists(TOKENS, min_size=1, max_size=3))
    def commit(self, data: st.DataObject, tokens: list[int]) -> None:
        slot = data.draw(st.sampled_from(sorted(self.held)))
        if len(self.held[slot].prompt + self.held[slot].output) + len(tokens) + 3 <= LONGEST:
            self.held[slot].output += tokens
            for host, token in product(self.hosts, tokens):
                host.commit(slot, token)

    @precondition(lambda self: any(not held.prefilling for held in self.held.values()))
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from([slot for slot, held in sorted(self.held.items()) if not held.prefilling]))
        held = self.held[slot]
        count = data.draw(st.integers(1, len(held.output) - held.resumed))
        del held.output[-count:]
        for host in self.hosts:
            host.total.gpu[slot] -= count
        self.step(data, [slot])  # the engine computes logits before it samples again

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        self.step(data, data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True, min_size=1)))

    @precondition(lambda self: any(held.prefilling for held in self.held.values()))
    @rule(data=st.data())
    def apply_within_prefills(self, data: st.DataObject) -> None:
        order = data.draw(st.permutations(sorted(self.held)))
        seen = {}
        for slot, held in self.held.items():
            whole = len(held.prompt + held.output)
            if held.prefilling and whole > 1:
                seen[slot] = data.draw(st.integers(1, whole))
        self.check(order, seen=seen)

    def step(self, data: st.DataObject, order: list[int]) -> None:
        drafts = {slot: data.draw(st.lists(TOKENS | st.just(-1), max_size=3)) for slot in order}
        slack = data.draw(st.integers(0, 2 if self.speculative or any(drafts.values()) else 0))
        self.check(order, drafts, slack, padding=data.draw(st.integers(0, 2)))

    def check(
        self,
        order: Sequence[int],
        drafts: dict[int, list[int]] | None = None,
        slack: int = 0,
        padding: int = 0,
        seen: dict[int, int] | None = None,
    ) -> None:
        drafts, seen = drafts or {}, seen or {}
        contexts = [host.context(order, drafts, seen, slack, padding) for host in self.hosts]
        logits = logits_of(len(contexts[0].pos))
        edited = [host.apply(logits.clone(), context) for host, context in zip(self.hosts, contexts, strict=True)]
        with torch.inference_mode():
            listed = {use: dict(zip(*lists.rows(contexts[0]), strict=True)) for use, lists in self.on_host.items()}
        row = 0
        for slot in order:
            held = self.held[slot]
            complete = seen.get(slot, LONGEST) >= len(held.prompt + held.output)
            for count in range(len(drafts.get(slot, ())) + 1):
                visible = held.output + drafts.get(slot, [])[:count]
                own = held.wanted and complete
                expected = weighed(logits[row], held.prompt, [token for token in visible if token >= 0])
                assert torch.equal(edited[0][row], expected if own else logits[row])
                by_call = expected + float(held.name[1:]) if own and -1 not in visible else logits[row]
                assert torch.equal(edited[1][row], by_call)
                for use in HISTORY_USES:
                    shown = own and (use != "tokens" or -1 not in visible)
                    assert (row in listed[use]) is shown
                    if shown:
                        self.check_lists(use, listed[use][row], slot, visible)
                row += 1

    def check_lists(self, use: str, row: V1Row, slot: int, visible: list[int]) -> None:
        prompt = self.held[slot].prompt
        assert row.params == self.held[slot].name
        if use == "tokens":
            assert (row.prompt_ids, row.output_ids) == (prompt, visible)
        elif use == "length":
            assert (len(row.prompt_ids), len(row.output_ids)) == (len(prompt), len(visible))


class TestSlots(Slots.TestCase):
    settings = STEADY
