"""Our V1 definitions behave as vLLM's: the rules a processor's author may rely on.

``tests/engine/test_interfaces.py`` compares them with vLLM's own code on random updates.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from lpkit.interfaces import v1_interface as v1
from lpkit.interfaces.sampling_params import SamplingParams

UNI = v1.MoveDirectionality.UNIDIRECTIONAL
SWAP = v1.MoveDirectionality.SWAP


def update(
    size: int = 4, removed: list[int] | None = None, added: list[Any] | None = None, moved: list[Any] | None = None
) -> v1.BatchUpdate:
    return v1.BatchUpdate(size, removed or [], added or [], moved or [])


def bias_of(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> dict[int, float] | None:
    return params.logit_bias


def added(row: int, bias: dict[int, float] | None) -> v1.AddedRequest:
    return (row, SamplingParams(logit_bias=bias), [1, 2], [])


def test_batch_update_fields_come_in_vllms_order() -> None:
    assert [field.name for field in fields(v1.BatchUpdate)] == ["batch_size", "removed", "added", "moved"]


def test_batch_update_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        update().batch_size = 1  # type: ignore[misc]


@pytest.mark.parametrize("method", ["__init__", "apply", "is_argmax_invariant", "update_state"])
def test_abstract_methods_raise_when_called_through_super(method: str) -> None:
    arguments = {"__init__": (None, None, False), "apply": (None,), "update_state": (None,)}.get(method, ())
    with pytest.raises(NotImplementedError):
        getattr(v1.LogitsProcessor, method)(object(), *arguments)


def test_a_processor_without_all_four_methods_cannot_be_constructed() -> None:
    class Half(v1.LogitsProcessor):
        def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None: ...

    with pytest.raises(TypeError, match="abstract"):
        Half(None, None, False)  # type: ignore[abstract]


class TestBatchUpdateBuilder:
    def test_removed_is_descending_however_it_was_filled(self) -> None:
        builder = v1.BatchUpdateBuilder()
        for row in (1, 5, 0, 3):
            builder.removed_append(row)
        assert builder.removed == [5, 3, 1, 0]

    def test_peek_and_pop_give_the_lowest_row_then_none(self) -> None:
        builder = v1.BatchUpdateBuilder(removed=[2, 0, 7])
        assert (builder.peek_removed(), builder.pop_removed()) == (0, 0)
        assert (builder.pop_removed(), builder.pop_removed()) == (2, 7)
        assert builder.peek_removed() is None
        assert builder.pop_removed() is None
        assert not builder.has_removed()

    @pytest.mark.parametrize("read", ["removed", "peek_removed", "pop_removed"])
    def test_a_removal_after_reading_is_refused(self, read: str) -> None:
        builder = v1.BatchUpdateBuilder(removed=[1])
        value = getattr(builder, read)
        if callable(value):
            value()
        with pytest.raises(RuntimeError):
            builder.removed_append(2)

    def test_peeking_at_an_empty_list_does_not_close_the_step(self) -> None:
        builder = v1.BatchUpdateBuilder()
        assert builder.peek_removed() is None
        builder.removed_append(3)
        assert builder.removed == [3]

    def test_a_new_step_accepts_removals_again(self) -> None:
        builder = v1.BatchUpdateBuilder(removed=[1])
        assert builder.removed == [1]
        builder.get_and_reset(1)
        builder.removed_append(0)
        assert builder.removed == [0]

    def test_only_removals_set_batch_changed(self) -> None:
        builder = v1.BatchUpdateBuilder()
        builder.added.append(added(0, None))
        builder.moved.append((0, 1, SWAP))
        assert not builder.batch_changed
        builder.removed_append(0)
        assert builder.batch_changed

    def test_reset_says_whether_the_batch_changed_and_drops_everything(self) -> None:
        builder = v1.BatchUpdateBuilder()
        assert builder.reset() is False
        builder.removed_append(0)
        builder.added.append(added(0, None))
        assert builder.reset() is True
        assert builder.reset() is False
        assert builder.get_and_reset(0) is None

    def test_get_and_reset_is_none_without_changes_even_if_the_flag_was_set(self) -> None:
        builder = v1.BatchUpdateBuilder()
        builder.batch_changed = True
        assert builder.get_and_reset(3) is None
        assert not builder.batch_changed

    def test_get_and_reset_hands_its_lists_over(self) -> None:
        builder = v1.BatchUpdateBuilder()
        builder.removed_append(2)
        first = builder.get_and_reset(2)
        assert first == update(2, removed=[2])
        builder.removed_append(1)
        assert first.removed == [2]
        assert builder.get_and_reset(1) == update(1, removed=[1])


class TestLogitsProcessors:
    class Claim(v1.LogitsProcessor):
        def __init__(self, invariant: bool) -> None:
            self.invariant, self.asked = invariant, 0

        def apply(self, logits: Any) -> Any:
            return logits

        def is_argmax_invariant(self) -> bool:
            self.asked += 1
            return self.invariant

        def update_state(self, batch_update: v1.BatchUpdate | None) -> None: ...

    def test_they_are_split_by_claim_in_order_and_all_starts_with_the_invariant_ones(self) -> None:
        a, b, c, d = (self.Claim(invariant) for invariant in (False, True, False, True))
        split = v1.LogitsProcessors(iter([a, b, c, d]))
        assert split.argmax_invariant == [b, d]
        assert split.non_argmax_invariant == [a, c]
        assert list(split.all) == [b, d, a, c]

    def test_the_claim_is_asked_once(self) -> None:
        processor = self.Claim(True)
        list(v1.LogitsProcessors([processor]).all)
        assert processor.asked == 1

    def test_none_and_nothing_are_empty(self) -> None:
        assert list(v1.LogitsProcessors().all) == list(v1.LogitsProcessors(None).all) == []


class TestProcessDictUpdates:
    """The five scenarios of the seed document's appendix N, then the corners it does not show."""

    def test_n1_an_added_request_with_a_bias_gets_an_entry(self) -> None:
        state: dict[int, dict[int, float]] = {}
        assert v1.process_dict_updates(state, update(added=[added(0, {100: 0.5, 200: -0.3})]), bias_of)
        assert state == {0: {100: 0.5, 200: -0.3}}

    def test_n2_a_removed_request_loses_its_entry(self) -> None:
        state = {0: {100: 0.5}, 1: {200: -0.3}}
        assert v1.process_dict_updates(state, update(1, removed=[1]), bias_of)
        assert state == {0: {100: 0.5}}

    def test_n3_a_swap_exchanges_two_entries(self) -> None:
        state = {0: {100: 0.5}, 1: {200: -0.3}}
        assert v1.process_dict_updates(state, update(2, moved=[(0, 1, SWAP)]), bias_of)
        assert state == {0: {200: -0.3}, 1: {100: 0.5}}

    def test_n4_a_one_way_move_leaves_its_source_empty(self) -> None:
        state = {0: {100: 0.5}, 2: {300: 0.8}}
        assert v1.process_dict_updates(state, update(3, moved=[(0, 1, UNI)]), bias_of)
        assert state == {1: {100: 0.5}, 2: {300: 0.8}}

    def test_n5_a_new_request_without_a_bias_clears_the_entry_it_replaces(self) -> None:
        state = {0: {100: 0.5}}
        assert v1.process_dict_updates(state, update(1, added=[added(0, None)]), bias_of)
        assert state == {}

    def test_no_update_changes_nothing(self) -> None:
        state = {0: {100: 0.5}}
        assert not v1.process_dict_updates(state, None, bias_of)
        assert not v1.process_dict_updates(state, update(0), bias_of)
        assert state == {0: {100: 0.5}}

    def test_new_state_gets_params_prompt_and_the_live_output_list(self) -> None:
        seen: list[Any] = []
        request = added(0, {1: 1.0})
        v1.process_dict_updates({}, update(added=[request]), lambda *arguments: seen.append(arguments))
        assert seen[0][0] is request[1]
        assert seen[0][1] is request[2]
        assert seen[0][2] is request[3]

    def test_a_one_way_move_overwrites_its_destination(self) -> None:
        state = {0: {1: 1.0}, 3: {3: 3.0}}
        assert v1.process_dict_updates(state, update(3, moved=[(3, 0, UNI)]), bias_of)
        assert state == {0: {3: 3.0}}

    def test_a_one_way_move_of_nothing_still_clears_its_destination(self) -> None:
        state = {0: {1: 1.0}}
        assert v1.process_dict_updates(state, update(1, moved=[(3, 0, UNI)]), bias_of)
        assert state == {}

    def test_a_swap_with_an_empty_row_moves_the_entry(self) -> None:
        state = {0: {1: 1.0}}
        assert v1.process_dict_updates(state, update(2, moved=[(1, 0, SWAP)]), bias_of)
        assert state == {1: {1: 1.0}}

    def test_moves_are_sequential(self) -> None:
        state = {0: {0: 0.5}, 1: {1: 1.0}, 2: {2: 2.0}}
        v1.process_dict_updates(state, update(3, moved=[(0, 1, SWAP), (1, 2, SWAP)]), bias_of)
        assert state == {0: {1: 1.0}, 1: {2: 2.0}, 2: {0: 0.5}}

    def test_moving_empty_rows_is_no_change(self) -> None:
        state = {5: {1: 1.0}}
        assert not v1.process_dict_updates(state, update(6, removed=[3], moved=[(0, 1, SWAP), (2, 0, UNI)]), bias_of)

    @pytest.mark.parametrize("falsy", [{}, 0, 0.0, "", False])
    def test_removing_a_falsy_entry_drops_it_but_reports_no_change(self, falsy: Any) -> None:
        state: dict[int, Any] = {1: falsy}
        assert not v1.process_dict_updates(state, update(1, removed=[1]), lambda *_: None)
        assert state == {}

    @pytest.mark.parametrize("falsy", [{}, 0, 0.0, "", False])
    def test_replacing_or_moving_a_falsy_entry_reports_a_change(self, falsy: Any) -> None:
        assert v1.process_dict_updates({0: falsy}, update(added=[added(0, None)]), lambda *_: None)
        state: dict[int, Any] = {0: falsy}
        assert v1.process_dict_updates(state, update(moved=[(0, 1, UNI)]), lambda *_: None)
        assert state == {1: falsy}
