"""Processors of one V2 engine find rows and histories once for all, and none sees what another did to its own."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import lpkit
import pytest
import torch
from lpkit.columns.memory import Memory
from lpkit.portable.shared import Shared
from sdk_hosts import V2Host, config, logits_of, params, recorded_ops

Read = Callable[[Any, Any], object]


def reader(history: str, read: Read, *keys: str) -> type[lpkit.LogitsProcessor]:
    """A processor that does something with its rows; a request uses it by any of its parameters."""

    class Wanted(lpkit.Params):
        a: bool = False
        b: bool = False

    class Reader(lpkit.LogitsProcessor):
        Params = Wanted

        def admit(self, request: Any) -> bool:
            return any(getattr(request.params, key) for key in keys or ("a", "b"))

        def process(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
            self.rows = rows
            self.read = read(self, rows)
            return logits

    Reader.history = history  # type: ignore[assignment]
    return Reader


def everything(_: object, rows: Any) -> list[torch.Tensor]:
    return [part.clone() for part in (rows.prompt_len, rows.total_len, rows.tokens, rows.is_output)]


def lengths(_: object, rows: Any) -> list[torch.Tensor]:
    return [rows.prompt_len.clone(), rows.total_len.clone()]


class Together:
    """Several processors of an engine, which is told of requests once for all."""

    def __init__(self, *classes: type) -> None:
        self.host = V2Host(classes[0])
        more = [cls(config(), self.host.states) for cls in classes[1:]]
        self.processors: list[Any] = [self.host.processor, *more]

    def add(self, slot: int, prompt: list[int], output: list[int], **asked: bool) -> None:
        self.host.add(slot, params(**asked), prompt, output)
        for processor in self.processors[1:]:
            processor.add_request(slot, params(**asked))

    def flush(self) -> None:
        self.host.flush()

    def call(self, context: Any) -> None:
        with torch.inference_mode():
            for processor in self.processors:
                processor.apply(logits_of(context.pos.shape[0]), context)


class OnADevice(Together):
    """Columns are sent to memory apart from the host's, as to a GPU."""

    def __init__(self, *classes: type) -> None:
        self.host = V2Host(classes[0])
        states = self.host.states = dataclasses.replace(self.host.states)
        shared = Shared.among(states)
        shared.memory = Memory(states.max_num_reqs, states.device)
        shared.memory._one_memory = False
        self.processors = [cls(config(), states) for cls in classes]
        self.host.processor = self.processors[0]


def filled(*classes: type) -> Together:
    engine = Together(*classes)
    engine.add(3, [5, 6, 7], [8], a=True, b=True)
    engine.add(1, [9], [4, 4], a=True, b=True)
    engine.add(6, [2, 2], [], a=True)
    engine.flush()
    return engine


def alone(cls: type, drafts: Any = None) -> Any:
    engine = filled(cls)
    engine.call(engine.host.context([6, 1, 3], drafts))
    return engine.processors[0].read


DRAFTS = pytest.mark.parametrize("drafts", [None, {1: [7, 7]}], ids=["", "with drafts"])


@DRAFTS
def test_what_the_first_has_found_the_others_are_given(drafts: Any) -> None:
    cls = reader("tokens", everything)
    engine = filled(cls, cls, cls)
    context = engine.host.context([6, 1, 3], drafts)
    with torch.inference_mode():
        logits = logits_of(context.pos.shape[0])
        engine.processors[0].apply(logits, context)
        with recorded_ops() as names:
            engine.processors[1].apply(logits, context)
            engine.processors[2].apply(logits, context)
    assert set(names) == {"clone"}
    first, second, third = engine.processors
    for found in (second, third):
        assert all(torch.equal(one, other) for one, other in zip(first.read, found.read, strict=True))
        assert found.rows.index is first.rows.index
    assert all(torch.equal(one, other) for one, other in zip(first.read, alone(cls, drafts), strict=True))


@DRAFTS
def test_processors_of_different_requests_have_rows_of_their_own(drafts: Any) -> None:
    one, other = reader("tokens", everything, "a"), reader("tokens", everything, "b")
    engine = filled(one, other)
    engine.call(engine.host.context([6, 1, 3], drafts))
    for processor, cls in zip(engine.processors, (one, other), strict=True):
        assert all(
            torch.equal(part, expected) for part, expected in zip(processor.read, alone(cls, drafts), strict=True)
        )


def spoilt(_: object, rows: Any) -> None:
    rows.tokens.clamp_(0)
    rows.total_len.add_(1)
    rows.is_output.fill_(True)


def spoilt_in_part(_: object, rows: Any) -> None:
    rows.tokens[0, 1:3] = 11


def spoilt_later(self: Any, rows: Any) -> None:
    """Return the tensors of the last call."""
    if hasattr(self, "kept"):
        self.kept.zero_()
    self.kept = rows.tokens


@DRAFTS
@pytest.mark.parametrize("spoil", [spoilt, spoilt_in_part, spoilt_later])
def test_what_one_does_in_place_to_what_he_read_no_other_sees(spoil: Read, drafts: Any) -> None:
    cls = reader("tokens", everything)
    engine = filled(reader("tokens", spoil), cls, cls)
    for _ in range(2):
        engine.call(engine.host.context([6, 1, 3], drafts))
        for processor in engine.processors[1:]:
            expected = alone(cls, drafts)
            assert all(torch.equal(part, other) for part, other in zip(processor.read, expected, strict=True))


@pytest.mark.parametrize("order", [("tokens", "length"), ("length", "tokens")])
def test_lengths_are_those_of_a_neighbour_who_reads_tokens_and_tokens_stay_undeclared(order: tuple[str, str]) -> None:
    engine = filled(*(reader(history, everything if history == "tokens" else lengths) for history in order))
    engine.call(engine.host.context([6, 1, 3]))
    for processor in engine.processors:
        assert torch.equal(processor.read[1], torch.tensor([2, 3, 4]))
    short = engine.processors[order.index("length")]
    with pytest.raises(TypeError, match="declare history = 'tokens'"):
        _ = short.rows.tokens


def test_a_processor_that_is_called_again_finds_everything_anew() -> None:
    engine = filled(reader("tokens", everything), reader("tokens", everything))
    context = engine.host.context([6, 1, 3])
    engine.call(context)
    engine.host.tokens.gpu[6, 1] = 31
    engine.call(context)
    assert [int(processor.read[2][0, 1]) for processor in engine.processors] == [31, 31]


def test_a_history_that_was_read_goes_with_the_context_of_its_call() -> None:
    engine = filled(reader("tokens", everything), reader("tokens", everything))
    context = engine.host.context([6, 1, 3])
    engine.call(context)
    tokens = weakref.ref(engine.processors[0].rows.tokens)
    for processor in engine.processors:
        del processor.rows
    assert tokens() is not None
    del context
    assert tokens() is None


def test_calls_with_one_context_leave_one_history() -> None:
    made: list[weakref.ref[torch.Tensor]] = []
    engine = filled(*[reader("tokens", lambda _, rows: made.append(weakref.ref(rows.tokens)))] * 2)
    context = engine.host.context([6, 1, 3])
    for _ in range(5):
        engine.call(context)
    for processor in engine.processors:
        del processor.rows
    assert len({id(tokens()) for tokens in made if tokens() is not None}) == 1


def test_a_processor_that_is_gone_is_not_kept_by_the_others() -> None:
    cls = reader("tokens", lengths)
    engine = filled(cls, cls)
    engine.call(engine.host.context([6, 1, 3]))
    gone = weakref.ref(engine.processors.pop())
    gc.collect()
    assert gone() is None


def test_engines_share_nothing_and_are_not_kept() -> None:
    cls = reader("tokens", everything)
    engines = [filled(cls, cls) for _ in range(2)]
    shared = [weakref.ref(engine.processors[0]._v2._shared) for engine in engines]
    assert shared[0]() is not shared[1]()
    assert engines[0].processors[1]._v2._shared is shared[0]()
    engines.clear()
    gc.collect()
    assert [found() for found in shared] == [None, None]


def test_a_request_that_leaves_and_one_that_takes_its_slot_are_told_apart() -> None:
    one, other = (
        reader("none", lambda _, rows: rows.slots.tolist(), "a"),
        reader("none", lambda _, rows: rows.slots.tolist()),
    )
    engine = filled(one, other)
    for asked in ({"a": True}, {"b": True}, {"a": True}):
        engine.add(1, [9], [], **asked)
        engine.flush()
        engine.call(engine.host.context([6, 1, 3]))
        own = [6, 1, 3] if "a" in asked else [6, 3]
        assert [processor.read for processor in engine.processors] == [own, [6, 1, 3]]


def scorer(key: str, edit: bool = False) -> type[lpkit.LogitsProcessor]:
    """Adds a request's number to its logits."""

    class Wanted(lpkit.Params):
        one: float | None = None
        two: float | None = None

    class Scorer(lpkit.LogitsProcessor):
        Params = Wanted
        score = lpkit.column(torch.float32, default=9.0)
        ids = lpkit.ragged(torch.int64)

        def admit(self, request: Any) -> bool:
            value = getattr(request.params, key)
            self.score[request.slot] = value or 0.0
            self.ids[request.slot] = [request.slot] * int(value or 0)
            return value is not None

        def process(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
            score = self.score[rows]
            self.read = score.tolist(), self.ids[rows].tolist()
            if edit:
                score.zero_()
            return logits

    return Scorer


def scored(*classes: type) -> Together:
    engine = OnADevice(*classes)
    for slot, asked in ((3, {"one": 3.0, "two": 5.0}), (1, {"one": 1.0, "two": 2.0}), (6, {"one": 6.0})):
        engine.host.add(slot, params(**asked), [1])
        for processor in engine.processors[1:]:
            processor.add_request(slot, params(**asked))
    return engine


def test_columns_of_all_are_sent_in_one_copy_and_read_in_one() -> None:
    one = scorer("one")
    engine = scored(one, scorer("two"), one)
    with recorded_ops() as sent:
        engine.flush()
    assert sent.count("copy_") + sent.count("index_copy_") == 2  # to pinned memory, and to the device
    context = engine.host.context([6, 1, 3])
    with recorded_ops() as read:
        engine.call(context)
    assert read.count("index_select") == 3  # the columns of two sets of requests, and the logits of the smaller one
    first, second, third = (processor.read for processor in engine.processors)
    ids = [[6] * 6 + [-1, -1], [1] + [-1] * 7, [3] * 3 + [-1] * 5]
    assert first == third == ([6.0, 1.0, 3.0], ids)
    assert second == ([2.0, 5.0], [[1, 1, *[-1] * 6], [3, 3, 3, 3, 3, -1, -1, -1]])


def test_what_one_does_to_the_columns_that_he_read_no_other_sees_and_no_later_step() -> None:
    engine = scored(scorer("one", edit=True), scorer("one"), scorer("one", edit=True))
    engine.flush()
    for _ in range(2):
        engine.call(engine.host.context([6, 1, 3]))
        assert [processor.read[0] for processor in engine.processors] == [[6.0, 1.0, 3.0]] * 3
