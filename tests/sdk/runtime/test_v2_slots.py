"""V2's slots and buffers against a plain model of what is where, and what may be seen when."""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lpkit.runtime import Request, V2Slots
from lpkit.sampling_params import SamplingParams

LENGTH = 24
TOKENS = st.lists(st.integers(0, 99), max_size=4)


class Slots(RuleBasedStateMachine):
    """Requests come, go and come back; nothing reaches the device before the flush, except generated tokens."""

    @initialize(size=st.integers(1, 5), poison=st.booleans())
    def start(self, size: int, poison: bool) -> None:
        self.slots = V2Slots(size, LENGTH, poison=poison)
        self.poison = poison
        self.free = list(range(size))
        self.held: dict[str, int] = {}
        self.requests: dict[str, Request] = {}
        self.staged: set[str] = set()
        self.serial = 0
        state = self.slots.state
        self.stable = state.all_token_ids.gpu, state.total_len.gpu
        self.kept = [state.prompt_len.gpu, state.prefill_len.gpu]
        self.shown = [tensor.clone() for tensor in self.kept]

    def running(self) -> list[str]:
        return [name for name in self.held if name not in self.staged]

    @precondition(lambda self: self.free)
    @rule(data=st.data(), prompt=st.lists(st.integers(0, 99), min_size=1, max_size=6), outputs=TOKENS)
    def add(self, data: st.DataObject, prompt: list[int], outputs: list[int]) -> None:
        away = [name for name in self.requests if name not in self.held]
        name = data.draw(st.sampled_from([*away, f"r{self.serial}"]))
        if name not in self.requests:
            self.serial += 1
            self.requests[name] = Request(name, SamplingParams(), prompt, output_token_ids=outputs)
        slot = self.free.pop()
        assert self.slots.add(self.requests[name]) == slot
        self.held[name] = slot
        self.staged.add(name)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free_one(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.held)))
        slot = self.held.pop(name)
        assert self.slots.free(name) == slot
        assert self.slots.free(name) is None
        self.free.append(slot)
        self.staged.discard(name)

    @rule()
    def flush(self) -> None:
        state = self.slots.state
        before = [state.prompt_len.gpu, state.prefill_len.gpu]
        self.slots.flush()
        after = [state.prompt_len.gpu, state.prefill_len.gpu]
        assert all(new is not old for new, old in zip(after, before, strict=True))
        if self.poison:
            assert all(bool((old == -1).all()) for old in before)
        self.kept, self.shown = after, [tensor.clone() for tensor in after]
        self.staged.clear()
        for name, slot in self.held.items():
            request = self.requests[name]
            assert after[0][slot] == request.prompt_len
            assert after[1][slot] == state.prefill_len.np[slot]

    @precondition(lambda self: self.running())
    @rule(data=st.data(), tokens=TOKENS)
    def commit(self, data: st.DataObject, tokens: list[int]) -> None:
        request = self.requests[data.draw(st.sampled_from(self.running()))]
        tokens = tokens[: LENGTH - request.total_len]
        request.output_token_ids += tokens
        self.slots.commit(self.held[request.request_id], tokens)

    @rule(token=st.integers(0, 99))
    def commit_each(self, token: int) -> None:
        names = [name for name in self.running() if self.requests[name].total_len < LENGTH]
        self.slots.commit_each([self.held[name] for name in names], [token + n for n in range(len(names))])
        for n, name in enumerate(names):
            self.requests[name].output_token_ids.append(token + n)

    @invariant()
    def a_request_keeps_its_slot(self) -> None:
        assert len(self.slots) == len(self.held)
        assert {name: self.slots.slot(name) for name in self.held} == self.held

    @invariant()
    def host_lengths_are_valid_at_once(self) -> None:
        state = self.slots.state
        for name, slot in self.held.items():
            request = self.requests[name]
            assert state.prompt_len.np[slot] == request.prompt_len
            assert self.slots.total_len_np[slot] == request.total_len
            if name in self.staged:
                assert state.prefill_len.np[slot] == request.total_len
            assert request.prompt_len <= state.prefill_len.np[slot] <= request.total_len

    @invariant()
    def the_device_has_what_was_flushed_and_generated(self) -> None:
        state = self.slots.state
        assert state.all_token_ids.gpu is self.stable[0] and state.total_len.gpu is self.stable[1]
        for name in self.running():
            request, slot = self.requests[name], self.held[name]
            tokens = [*(request.prompt_token_ids or ()), *request.output_token_ids]
            assert state.total_len.gpu[slot] == len(tokens)
            assert state.all_token_ids.gpu[slot, : len(tokens)].tolist() == tokens
        # What is staged shows on the device after the flush only.
        assert all(torch.equal(now, then) for now, then in zip(self.kept, self.shown, strict=True))


class TestSlots(Slots.TestCase):
    settings = settings(derandomize=True, deadline=None, database=None, max_examples=80, stateful_step_count=40)
