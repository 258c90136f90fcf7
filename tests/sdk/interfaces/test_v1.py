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

    def test_a_new_step_accepts_removals_again(self) -> None:
        builder = v1.BatchUpdateBuilder()
        assert builder.peek_removed() is None  # there is nothing to read: the step stays open
        builder.removed_append(1)
        assert builder.removed == [1]
        first = builder.get_and_reset(1)
        builder.removed_append(0)
        assert first == update(1, removed=[1])
        assert builder.get_and_reset(0) == update(0, removed=[0])

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


A, B, C = {1: 1.0}, {2: 2.0}, {3: 3.0}


class TestProcessDictUpdates:
    """The engine's tests compare it with vLLM's on random updates."""

    @pytest.mark.parametrize(
        ("before", "changes", "after", "changed"),
        [
            ({}, update(added=[added(0, A)]), {0: A}, True),
            ({0: A}, update(1, added=[added(0, None)]), {}, True),
            ({0: A, 1: B}, update(1, removed=[1]), {0: A}, True),
            ({0: A, 1: B}, update(2, moved=[(0, 1, SWAP)]), {0: B, 1: A}, True),
            ({0: A}, update(2, moved=[(1, 0, SWAP)]), {1: A}, True),
            ({0: A, 2: C}, update(3, moved=[(0, 1, UNI)]), {1: A, 2: C}, True),
            ({0: A, 3: C}, update(3, moved=[(3, 0, UNI)]), {0: C}, True),
            ({0: A}, update(1, moved=[(3, 0, UNI)]), {}, True),
            ({0: A, 1: B, 2: C}, update(3, moved=[(0, 1, SWAP), (1, 2, SWAP)]), {0: B, 1: C, 2: A}, True),
            ({5: A}, update(6, removed=[3], moved=[(0, 1, SWAP), (2, 0, UNI)]), {5: A}, False),
            ({0: A}, update(0), {0: A}, False),
            ({0: A}, None, {0: A}, False),
            # What is falsy is a state: where it is only removed, vLLM reports no change.
            *(({1: falsy}, update(1, removed=[1]), {}, False) for falsy in ({}, 0, "")),
            *(({0: falsy}, update(moved=[(0, 1, UNI)]), {1: falsy}, True) for falsy in ({}, 0, "")),
            *(({0: falsy}, update(added=[added(0, None)]), {}, True) for falsy in ({}, 0, "")),
        ],
    )
    def test_states_follow_their_requests_and_a_change_is_reported(
        self, before: dict[int, Any], changes: v1.BatchUpdate | None, after: dict[int, Any], changed: bool
    ) -> None:
        state = dict(before)
        assert v1.process_dict_updates(state, changes, bias_of) is changed
        assert state == after

    def test_new_state_gets_params_prompt_and_the_live_output_list(self) -> None:
        seen: list[Any] = []
        request = added(0, A)
        v1.process_dict_updates({}, update(added=[request]), lambda *arguments: seen.append(arguments))
        assert all(given is meant for given, meant in zip(seen[0], request[1:], strict=True))
