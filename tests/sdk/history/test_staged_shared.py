"""On V1 the processors of an engine copy each history once, and share a copy only of the same lists."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import lpkit
import pytest
import torch
from lpkit.history import staged
from lpkit.v1 import BatchUpdate
from sdk_hosts import config, logits_of, new, params


class Together:
    """Processors of one engine: each is told of a step before any is asked for its edit."""

    def __init__(self, *classes: type, max_num_seqs: int = 4) -> None:
        self.config = config(max_num_seqs)
        self.processors: list[Any] = [cls(self.config, torch.device("cpu"), False) for cls in classes]

    def update(self, size: int, removed: Any = (), added: Any = (), moved: Any = ()) -> None:
        with torch.inference_mode():
            for processor in self.processors:
                processor.update_state(BatchUpdate(size, list(removed), list(added), list(moved)))

    def step(self, rows: int) -> None:
        with torch.inference_mode():
            for processor in self.processors:
                processor.apply(logits_of(rows))

    def shown(self) -> list[list[list[int]]]:
        return [processor.shown for processor in self.processors]


class Wanted(lpkit.Params):
    read: bool = False
    also: bool = False


class Reads(lpkit.LogitsProcessor):
    """Keeps what the last step has shown."""

    history = "tokens"
    Params = Wanted

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.shown: list[list[int]] = []

    def admit(self, request: Any) -> bool:
        return bool(request.params.read)

    def process(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
        self.shown = [[token for token in ids if token >= 0] for ids in rows.tokens.tolist()]
        return logits


class ReadsSome(Reads):
    def admit(self, request: Any) -> bool:
        return bool(request.params.also)


class EditsLengths(Reads):
    def process(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
        self.shown = [rows.total_len.tolist()]
        rows.total_len.zero_()
        rows.prompt_len.add_(1)
        return logits


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the numbers in each copy of a history."""
    counts: list[int] = []
    send = staged.sent
    monkeypatch.setattr(staged, "sent", lambda values, device: counts.append(len(values)) or send(values, device))
    return counts


def test_a_token_travels_once_for_all_processors(sent: list[int]) -> None:
    engine = Together(Reads, Reads, Reads)
    outputs: list[list[int]] = [[1], [2, 3]]
    engine.update(2, added=[new(row, params(read=True), output) for row, output in enumerate(outputs)])
    for token in (4, 5):
        engine.step(2)
        assert engine.shown() == [[[5, 6, 7, *output] for output in outputs]] * 3
        for output in outputs:
            output.append(token)
    lengths, tokens = 2 * 2, 9
    assert sent == [lengths + 3 * tokens, lengths + 3 * 2]


def test_a_history_stays_while_anybody_holds_it() -> None:
    engine = Together(Reads, ReadsSome)
    one, other = [1, 2], [3]
    engine.update(2, added=[new(0, params(read=True, also=True), one), new(1, params(read=True), other)])
    engine.step(2)
    assert engine.shown() == [[[5, 6, 7, 1, 2], [5, 6, 7, 3]], [[5, 6, 7, 1, 2]]]
    engine.update(1, removed=[1])
    one.append(9)
    engine.step(1)
    assert engine.shown() == [[[5, 6, 7, 1, 2, 9]]] * 2
    again = [8]
    engine.update(2, added=[new(1, params(read=True, also=True), again)])
    engine.step(2)
    assert engine.shown() == [[[5, 6, 7, 1, 2, 9], [5, 6, 7, 8]]] * 2


def test_places_are_enough_while_one_processor_has_heard_of_a_new_batch_and_the_next_not_yet() -> None:
    engine = Together(Reads, Reads, max_num_seqs=2)
    for turn in range(5):
        outputs = [[turn, 9], [turn + 1, 9]]
        engine.update(2, added=[new(row, params(read=True), output) for row, output in enumerate(outputs)])
        engine.step(2)
        with torch.inference_mode():
            fresh = [[20 + turn, 9], [21 + turn, 9]]
            added = [new(row, params(read=True), output) for row, output in enumerate(fresh)]
            engine.processors[0].update_state(BatchUpdate(2, [], added, []))
            engine.processors[0].apply(logits_of(2))
            engine.processors[1].apply(logits_of(2))
        assert engine.shown() == [[[5, 6, 7, *output] for output in some] for some in (fresh, outputs)]


def test_processors_that_follow_two_batches_with_one_configuration_do_not_meet() -> None:
    engine = Together(Reads, Reads)
    for number, processor in enumerate(engine.processors):
        added = [new(0, params(read=True), [number])]
        processor.update_state(BatchUpdate(1, [], added, []))
    engine.step(1)
    assert engine.shown() == [[[5, 6, 7, 0]], [[5, 6, 7, 1]]]


def test_requests_with_one_output_list_and_prompts_of_their_own_are_told_apart() -> None:
    engine = Together(Reads)
    output: list[int] = [4]
    engine.update(2, added=[(0, params(read=True), [1], output), (1, params(read=True), [2, 3], output)])
    engine.step(2)
    assert engine.shown() == [[[1, 4], [2, 3, 4]]]


def test_lengths_that_one_has_edited_are_sent_again_for_the_next() -> None:
    engine = Together(EditsLengths, EditsLengths, Reads)
    engine.update(2, added=[new(0, params(read=True), [1]), new(1, params(read=True), [2, 3])])
    for _ in range(2):
        engine.step(2)
        assert engine.shown()[:2] == [[[4, 5]]] * 2
        assert engine.shown()[2] == [[5, 6, 7, 1], [5, 6, 7, 2, 3]]


def test_a_placeholder_is_unknown_to_all_until_it_is_repaired() -> None:
    engine = Together(Reads, Reads)
    output = [1, -1]
    engine.update(1, added=[new(0, params(read=True), output)])
    engine.step(1)
    assert engine.shown() == [[]] * 2
    output[1] = 7
    engine.step(1)
    assert engine.shown() == [[[5, 6, 7, 1, 7]]] * 2


def test_a_processor_that_is_gone_gives_its_places_back() -> None:
    engine = Together(Reads, Reads)
    history = engine.processors[0]._v1._history
    for turn in range(4):
        engine.processors.append(Reads(engine.config, torch.device("cpu"), False))
        engine.update(2, added=[new(row, params(read=True), [turn]) for row in range(2)])
        engine.step(2)
        engine.processors.pop()
        gc.collect()
    assert history._buffer.shape[0] == 4
    assert sum(holders for _, holders in history._holders.values()) == 2 * 2
    assert len(history._users) == 2


@pytest.mark.parametrize("first", [True, False])
def test_processors_may_be_called_in_inference_mode_and_outside_of_it(first: bool) -> None:
    engine = Together(Reads, Reads)
    output = [1]
    engine.update(1, added=[new(0, params(read=True), output)])
    for length in (1, 90):
        output += [2] * (length - len(output))
        for processor, mode in zip(engine.processors, (first, not first), strict=True):
            with torch.inference_mode(mode):
                processor.apply(logits_of(1))
        assert engine.shown() == [[[5, 6, 7, *output]]] * 2


def test_what_is_shared_goes_with_the_processors() -> None:
    engine = Together(Reads, Reads)
    shared = weakref.ref(engine.processors[0]._v1._history)
    assert engine.processors[1]._v1._history is shared()
    del engine
    gc.collect()
    assert shared() is None
