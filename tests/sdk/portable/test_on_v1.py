"""The portable base on V1: state follows requests, others' rows are theirs, and idling is free."""

from __future__ import annotations

from types import SimpleNamespace

import lpkit
import pytest
import torch
from lpkit.kernels import fused
from lpkit.kernels.recording import SlotHistories
from sdk_hosts import (
    A_FEW_FRAMES,
    HOST_SYNCS,
    SWAP,
    VOCAB,
    V1Host,
    logits_of,
    memory_of,
    new,
    params,
    recorded_ops,
)
from sdk_plugins import Add, AddInPlace, Lengths, MinP, Temper, TemperAtSampling, Weigh


class TestNobodyAsked:
    @pytest.mark.parametrize("cls", [Add, MinP, Lengths, Weigh])
    def test_the_same_tensor_comes_back_without_any_operation(self, cls: type) -> None:
        host = V1Host(cls)
        logits = logits_of(2)
        with recorded_ops() as names:
            host.update(2, added=[new(0, params()), new(1, params(foreign=1, floor=0.0))])
            assert host.apply(logits) is logits
            host.quiet()
            assert host.apply(logits) is logits
            host.update(2, moved=[(0, 1, SWAP)])
            assert host.apply(logits) is logits
            host.update(1, removed=[1])
            assert host.apply(logits[:1]) is not None
        assert [name for name in names if name != "slice"] == []

    def test_a_plugin_that_no_request_uses_does_not_even_look_at_its_recorded_step(self) -> None:
        host, logits = V1Host(Add), logits_of(1)
        host.processor._by_slot = object()
        assert host.apply(logits) is logits
        host.update(1, added=[new(0, params(add=1.0))])
        with pytest.raises(AttributeError, match="recorded"):
            host.apply(logits)
        host.update(1, added=[new(0, params())])
        assert host.apply(logits) is logits

    def test_it_costs_nothing_again_once_the_last_user_has_left(self) -> None:
        host = V1Host(Add)
        host.update(1, added=[new(0, params(add=1.0))])
        host.apply(logits_of(1))
        logits = logits_of(1)
        with recorded_ops() as names:
            host.update(1, added=[new(0, params())])
            assert host.apply(logits) is logits
        assert names == []

    def test_an_empty_batch_is_left_alone(self) -> None:
        host = V1Host(Add)
        host.update(1, added=[new(0, params(add=1.0))])
        host.update(0, removed=[0])
        empty = torch.zeros(0, VOCAB)
        assert host.apply(empty) is empty

    def test_a_step_without_changes_allocates_nothing(self) -> None:
        host = V1Host(Add, max_num_seqs=1024)
        host.update(1024, added=[new(row, params(add=1.0)) for row in range(1024)])
        host.apply(logits_of(1024))
        assert memory_of(lambda: host.processor.update_state(None)) <= A_FEW_FRAMES
        inert, logits = V1Host(Weigh), logits_of(8)
        inert.update(8, added=[new(row, params()) for row in range(8)])
        assert memory_of(lambda: inert.processor.apply(logits)) <= A_FEW_FRAMES


class TestRows:
    def test_a_kernel_reads_the_histories_of_some_rows_where_they_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read = []

        def history(texts: SlotHistories, rows: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, ...]:
            last = texts.last[rows]  # where this raises, a kernel reads memory of others
            read.append(rows.tolist())
            return texts.prompts[slots], last + 1, torch.empty(0), torch.empty(0)

        monkeypatch.setattr(fused, "few_for", lambda held: SimpleNamespace(history=history))
        host = V1Host(Lengths)
        arguments = [params(lengths=True) if row in (2, 5) else params() for row in range(6)]
        host.update(6, added=[new(row, given) for row, given in enumerate(arguments)])
        host.apply(logits_of(6))
        assert read == [[2, 5]]

    @pytest.mark.parametrize("cls", [Add, AddInPlace])
    def test_a_batch_of_users_is_processed_as_a_whole(self, cls: type) -> None:
        host = V1Host(cls)
        host.update(3, added=[new(i, params(add=float(i))) for i in range(3)])
        before = logits_of(3)
        with recorded_ops() as names:
            result = host.apply(before.clone())
        assert torch.equal(result, before + torch.tensor([[0.0], [1.0], [2.0]]))
        assert "index_copy_" not in names
        assert "index_copy" not in names

    def test_non_contiguous_logits_are_edited_alike(self) -> None:
        host = V1Host(AddInPlace)
        host.update(3, added=[new(0, params()), new(1, params(add=1.0)), new(2, params())])
        wide = torch.zeros(3, VOCAB + 8)
        result = host.apply(wide[:, :VOCAB])
        assert torch.equal(result, torch.tensor([[0.0], [1.0], [0.0]]).expand(3, VOCAB))
        assert not wide[:, VOCAB:].any()

    def test_unwritten_columns_of_a_reused_slot_are_reset(self) -> None:
        class Sometimes(Add):
            def admit(self, request: lpkit.Request) -> bool:
                if request.params.add > 0:
                    self.amount[request.slot] = request.params.add
                return True

        host = V1Host(Sometimes, max_num_seqs=1)
        host.update(1, added=[new(0, params(add=10.0))])
        host.update(1, added=[new(0, params(add=-1.0))])
        assert not host.apply(torch.zeros(1, VOCAB)).any()


class TestStage:
    def test_greedy_requests_are_processed_at_the_logits_stage(self) -> None:
        host = V1Host(Add)
        host.update(1, added=[new(0, params(temperature=0.0, add=2.0))])
        assert host.apply(torch.zeros(1, VOCAB))[0, 0] == 2

    def test_greedy_requests_are_not_admitted_at_the_sampling_stage(self) -> None:
        host = V1Host(MinP)
        logits = logits_of(2)
        host.update(2, added=[new(0, params(temperature=0.0, floor=0.5)), new(1, params(floor=0.5))])
        before = logits.clone()
        result = host.apply(logits)
        assert torch.equal(result[0], before[0])
        assert not torch.equal(result[1], before[1])

    def test_the_claim_follows_the_stage(self) -> None:
        assert V1Host(MinP).processor.is_argmax_invariant()
        assert not V1Host(Add).processor.is_argmax_invariant()

    def test_at_the_logits_stage_the_temperature_is_still_to_come_and_one_for_greedy(self) -> None:
        host = V1Host(Temper)
        host.update(2, added=[new(i, params(temperature=t, temper=True)) for i, t in enumerate((0.5, 0.0))])
        assert host.apply(torch.zeros(2, VOCAB))[:, 0].tolist() == [0.5, 1.0]

    def test_at_the_sampling_stage_the_temperature_has_been_applied(self) -> None:
        host = V1Host(TemperAtSampling)
        host.update(1, added=[new(0, params(temperature=0.5, temper=True))])
        assert host.apply(torch.zeros(1, VOCAB))[0, 0] == 1.0


class TestNoWaiting:
    @pytest.mark.parametrize(("cls", "key"), [(Add, "add"), (MinP, "floor"), (Lengths, "lengths"), (Weigh, "weigh")])
    def test_apply_never_reads_a_device_value(self, cls: type, key: str) -> None:
        host = V1Host(cls)
        user = params(**{key: True if key in ("lengths", "weigh") else 0.5})
        host.update(3, added=[new(0, user, [3]), new(1, params()), new(2, user, [4, 5])])
        with recorded_ops() as names:
            host.apply(logits_of(3))
        assert names
        assert not HOST_SYNCS & set(names), names
