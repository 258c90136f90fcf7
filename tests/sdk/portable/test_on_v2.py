"""The portable base on V2: slots are the engine's, rows are looked up in each call."""

from __future__ import annotations

import pytest
import torch
from sdk_hosts import A_FEW_FRAMES, HOST_SYNCS, VOCAB, V2Host, bits, logits_of, memory_of, params, recorded_ops
from sdk_plugins import Add, AddInPlace, Lengths, MinP, Spy, Temper, TemperAtSampling, Weigh


class TestNobodyAsked:
    @pytest.mark.parametrize("cls", [Add, MinP, Lengths, Weigh])
    def test_the_same_tensor_comes_back_without_any_operation(self, cls: type) -> None:
        host = V2Host(cls)
        assert not host.add(3, params(), [1, 2])
        assert not host.add(1, params(foreign=1), [1, 2])
        context = host.context([3, 1])
        drafted = host.context([3, 1], drafts={1: [4, 5]})
        logits, more = logits_of(2), logits_of(4)
        with recorded_ops() as names:
            host.processor.apply_staged_writes()
            assert host.apply(logits, context) is logits
            assert host.apply(more, drafted) is more
        assert names == []

    def test_a_plugin_that_no_request_has_used_does_not_even_look_at_the_batch(self) -> None:
        host = V2Host(Add)
        host.add(0, params(), [1])
        logits = logits_of(1)
        assert host.processor.apply(logits, object()) is logits
        host.add(0, params(add=1.0), [1])
        with pytest.raises((AttributeError, TypeError)):
            host.processor.apply(logits, object())
        host.add(0, params(), [1])
        assert host.processor.apply(logits, object()) is logits

    def test_a_step_without_changes_allocates_nothing(self) -> None:
        host = V2Host(Add)
        host.add(0, params(add=1.0), [1])
        assert memory_of(host.processor.apply_staged_writes) <= A_FEW_FRAMES

    def test_admission_is_what_add_request_answers(self) -> None:
        host = V2Host(MinP)
        assert host.add(0, params(floor=0.5), [1])
        assert not host.add(1, params(floor=0.0), [1])
        assert not host.add(2, params(temperature=0.0, floor=0.5), [1])
        assert not host.add(3, params(), [1])

    def test_a_warm_up_call_without_requests_is_left_alone(self) -> None:
        host = V2Host(Add)
        host.add(0, params(), [])
        logits = torch.zeros(0, VOCAB)
        assert host.apply(logits, host.context([])) is logits


class TestRows:
    @pytest.mark.parametrize("mapping", [torch.int32, torch.int64])
    @pytest.mark.parametrize("cls", [Add, AddInPlace])
    def test_values_follow_the_slot_wherever_the_row_stands(self, cls: type, mapping: torch.dtype) -> None:
        host = V2Host(cls)
        for slot in (7, 2, 5):
            host.add(slot, params(add=float(slot)) if slot != 2 else params(), [1, 2])
        for order in ([7, 2, 5], [5, 7, 2], [2, 5], [7], [2], [5, 7]):
            before = logits_of(len(order))
            result = host.apply(before.clone(), host.context(order, mapping=mapping))
            add = torch.tensor([[0.0 if slot == 2 else float(slot)] for slot in order])
            assert torch.equal(result, before + add)
        host.add(5, params(), [1, 2])  # in the place of one that used it, in a step with the same slots
        result = host.apply(before.clone(), host.context([5, 7], mapping=mapping))
        assert torch.equal(result, before + torch.tensor([[0.0], [7.0]]))

    def test_a_batch_of_users_is_processed_as_a_whole(self) -> None:
        host = V2Host(Add)
        host.add(0, params(add=1.0), [1])
        host.add(1, params(add=2.0), [1])
        context = host.context([1, 0])
        with recorded_ops() as names:
            assert host.apply(torch.zeros(2, VOCAB), context)[:, 0].tolist() == [2, 1]
        assert "index_copy_" not in names

    def test_which_rows_are_whose_is_sent_when_it_changes_and_not_before(self) -> None:
        host = V2Host(Add)
        for slot in range(3):
            host.add(slot, params(add=1.0), [1])
        seen = []
        for order in ([2, 0], [2, 0], [0, 2], [0, 2, 1], [0, 2, 1]):
            context = host.context(order)
            with recorded_ops() as names:
                rows = host.processor._v2.rows(None, context)
            seen.append((rows.index.tolist(), rows.slots.tolist(), bool(names)))
        two, three = [0, 1], [0, 1, 2]
        assert [item[:2] for item in seen] == [
            (two, [2, 0]),
            (two, [2, 0]),
            (two, [0, 2]),
            (three, [0, 2, 1]),
            (three, [0, 2, 1]),
        ]
        assert [item[2] for item in seen] == [True, False, True, True, False]

    def test_at_either_stage_the_temperature_is_still_to_come(self) -> None:
        for cls in (Temper, TemperAtSampling):
            host = V2Host(cls)
            host.add(0, params(temperature=0.5, temper=True), [1])
            assert host.apply(torch.zeros(1, VOCAB), host.context([0]))[0, 0] == 0.5
        host = V2Host(Temper)
        host.add(0, params(temperature=0.0, temper=True), [1])
        assert host.apply(torch.zeros(1, VOCAB), host.context([0]))[0, 0] == 1.0


class TestHistory:
    def test_the_width_grows_in_powers_of_two_up_to_the_engines_longest(self) -> None:
        host = V2Host(Spy, max_model_len=96)
        for length in (1, 64, 65, 96):
            host.add(0, params(weigh=True), [i % VOCAB for i in range(length)])
            host.apply(logits_of(1), host.context([0]))
            assert host.processor.shown[0] == [i % VOCAB for i in range(length)]
        assert host.processor.widths == [64, 64, 96, 96]


class TestDrafts:
    """Speculative decoding: several rows per request, and bounds that may be too high."""

    def test_lengths_count_drafts(self) -> None:
        host = V2Host(Lengths)
        host.add(5, params(lengths=True), [1, 2])
        result = host.apply(logits_of(3), host.context([5], drafts={5: [10, 11]}, slack=1))
        assert result[:, :3].tolist() == [[2, 2, 0], [2, 3, 1], [2, 4, 2]]

    @pytest.mark.parametrize("cls", [Add, AddInPlace])
    def test_rows_of_others_with_drafts_of_their_own_keep_their_bits(self, cls: type) -> None:
        host = V2Host(cls)
        for slot in range(4):
            host.add(slot, params(add=1.0 + slot) if slot in (1, 2) else params(), [1])
        for order in ([0, 1, 2, 3], [3, 2, 0, 1], [1, 0], [3, 1]):
            for drafts in ({0: [4, 4, 4]}, {1: [4, 4]}, {0: [4], 1: [4], 2: [4, 4], 3: [4, 4]}):
                context = host.context(order, drafts=drafts, slack=1)
                before = logits_of(context.pos.shape[0])
                result = host.apply(before.clone(), context)
                slots = context.expanded_idx_mapping
                add = torch.where((slots == 1) | (slots == 2), 1.0 + slots, 0.0).unsqueeze(1)
                assert torch.equal(result, before + add)
                if cls is Add:
                    others = (slots == 0) | (slots == 3)
                    assert torch.equal(bits(result[others]), bits(before[others]))


class TestNoWaiting:
    @pytest.mark.parametrize("drafts", [{}, {0: [3, 4], 1: [5]}], ids=["plain", "drafts"])
    @pytest.mark.parametrize(("cls", "key"), [(Add, "add"), (MinP, "floor"), (Lengths, "lengths"), (Weigh, "weigh")])
    def test_apply_never_reads_a_device_value(self, cls: type, key: str, drafts: dict[int, list[int]]) -> None:
        host = V2Host(cls)
        host.add(0, params(**{key: True if key in ("lengths", "weigh") else 0.5}), [1, 2])
        host.add(1, params(), [1])
        context = host.context([1, 0], drafts=drafts)
        with recorded_ops() as names:
            host.apply(logits_of(context.pos.shape[0]), context)
        assert names
        assert not HOST_SYNCS & set(names), names
