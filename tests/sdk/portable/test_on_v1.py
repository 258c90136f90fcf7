"""The portable base on V1: state follows requests, others' rows are theirs, and idling is free."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import lpkit
import pytest
import torch
from lpkit.sampling_params import SamplingParams
from sdk_hosts import (
    A_FEW_FRAMES,
    HOST_SYNCS,
    ONE_WAY,
    SWAP,
    VOCAB,
    V1Host,
    config,
    logits_of,
    memory_of,
    params,
    recorded_ops,
)
from sdk_plugins import Add, AddInPlace, Lengths, MinP, Spy, Temper, TemperAtSampling, Weigh, weighed


def new(row: int, sampling: SamplingParams, output: list[int] | None = None, prompt: Any = (5, 6, 7)) -> Any:
    return (row, sampling, None if prompt is None else list(prompt), [] if output is None else output)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int32)


class TestNobodyAsked:
    @pytest.mark.parametrize("cls", [Add, MinP, Lengths, Weigh])
    def test_the_same_tensor_comes_back_without_any_operation(self, cls: type) -> None:
        host = V1Host(cls)
        logits = logits_of(2)
        with recorded_ops() as names:
            host.update(2, added=[new(0, params()), new(1, params(foreign=1))])
            assert host.apply(logits) is logits
            host.quiet()
            assert host.apply(logits) is logits
            host.update(2, moved=[(0, 1, SWAP)])
            assert host.apply(logits) is logits
            host.update(1, removed=[1])
            assert host.apply(logits[:1]) is not None
        assert [name for name in names if name != "slice"] == []

    def test_it_costs_nothing_again_once_the_last_user_has_left(self) -> None:
        host = V1Host(Add)
        host.update(1, added=[new(0, params(add=1.0))])
        host.apply(logits_of(1))
        logits = logits_of(1)
        with recorded_ops() as names:
            host.update(1, added=[new(0, params())])
            assert host.apply(logits) is logits
        assert names == []

    def test_a_request_that_is_declined_costs_nothing(self) -> None:
        host = V1Host(MinP)
        logits = logits_of(1)
        with recorded_ops() as names:
            host.update(1, added=[new(0, params(floor=0.0))])
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
    @pytest.mark.parametrize("cls", [Add, AddInPlace])
    def test_some_rows_are_gathered_and_the_rest_keeps_its_bits(self, cls: type) -> None:
        host = V1Host(cls)
        host.update(4, added=[new(i, params(add=i + 0.5) if i % 2 else params()) for i in range(4)])
        logits = logits_of(4)
        before = logits.clone()
        result = host.apply(logits)
        assert torch.equal(bits(result[0::2]), bits(before[0::2]))
        assert torch.equal(result[1], before[1] + 1.5)
        assert torch.equal(result[3], before[3] + 3.5)

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

    def test_moves_in_either_form_carry_the_values(self) -> None:
        host = V1Host(Add)
        host.update(4, added=[new(i, params(add=10.0 * (i + 1))) for i in range(4)])
        # E replaces A, C goes, D fills C's row, then rows 0 and 1 are exchanged.
        host.update(3, added=[new(0, params(add=50.0))], moved=[(3, 2, ONE_WAY), (0, 1, SWAP)])
        assert host.apply(torch.zeros(3, VOCAB))[:, 0].tolist() == [20, 50, 40]

    def test_a_replaced_users_value_is_not_inherited(self) -> None:
        host = V1Host(Add)
        host.update(1, added=[new(0, params(add=10.0))])
        host.update(1, added=[new(0, params())])
        logits = torch.zeros(1, VOCAB)
        assert host.apply(logits) is logits

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


class Arguments(dict[str, Any]):
    """Counts how often its keys are gone through."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        type(self).walks += 1
        return super().__iter__()


class TestAdmission:
    def test_a_requests_keys_are_looked_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        host, sampling = V1Host(Add), SamplingParams(extra_args=Arguments(add=1.0))
        monkeypatch.setattr(Arguments, "walks", 0)
        host.update(1, added=[new(0, sampling)])
        assert Arguments.walks == 1

    def test_what_admit_sees(self) -> None:
        seen: list[lpkit.Request] = []

        class Look(Add):
            def admit(self, request: lpkit.Request) -> bool:
                seen.append(request)
                return True

        host = V1Host(Look, max_num_seqs=3)
        sampling = params(add=1.0)
        host.update(2, added=[new(0, sampling), new(1, params(add=2.0), prompt=None)])
        assert seen[0].sampling_params is sampling
        assert seen[0].params.add == 1.0
        assert [request.prompt_token_ids for request in seen] == [[5, 6, 7], None]
        assert {request.slot for request in seen} <= {0, 1, 2}
        assert len({request.slot for request in seen}) == 2

    def test_an_admit_that_raises_declines_that_request_and_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        class Fragile(Add):
            def admit(self, request: lpkit.Request) -> bool:
                if request.params.add == 13.0:
                    raise RuntimeError("unlucky")
                return super().admit(request)

        host = V1Host(Fragile)
        with caplog.at_level(logging.ERROR, logger="lpkit"):
            host.update(2, added=[new(0, params(add=13.0)), new(1, params(add=1.0))])
        assert host.apply(torch.zeros(2, VOCAB))[:, 0].tolist() == [0, 1]
        assert "Fragile declined a request" in caplog.text
        assert "unlucky" in caplog.text

    def test_parameters_that_slipped_past_validation_decline_the_request(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        host = V1Host(Add)
        with caplog.at_level(logging.ERROR, logger="lpkit"):
            host.update(1, added=[new(0, params(add="much"))])
        logits = torch.zeros(1, VOCAB)
        assert host.apply(logits) is logits
        assert "add: Input should be a valid number" in caplog.text

    @pytest.mark.parametrize("sent", [{"my_one": VOCAB}, {"my_many": [1, VOCAB]}, {"my_named": {"a": VOCAB}}])
    def test_a_token_id_beyond_the_vocabulary_is_declined_by_name(
        self, sent: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        class Tokens(lpkit.LogitsProcessor):
            class Params(lpkit.Params, prefix="my_"):
                one: lpkit.TokenId | None = None
                many: list[lpkit.TokenId] = []
                named: dict[str, lpkit.TokenId] = {}

            def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
                return logits + 1

        host = V1Host(Tokens)
        good = params(my_one=VOCAB - 1, my_many=[0], my_named={"a": 3})
        with caplog.at_level(logging.ERROR, logger="lpkit"):
            host.update(2, added=[new(0, params(**sent)), new(1, good)])
        assert host.apply(torch.zeros(2, VOCAB))[:, 0].tolist() == [0, 1]
        assert f"{next(iter(sent))}: token id 32 is outside the vocabulary of 32" in caplog.text

    def test_without_params_every_request_is_asked(self) -> None:
        class Everyone(lpkit.LogitsProcessor):
            def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
                return logits + 1

        host = V1Host(Everyone)
        host.update(1, added=[new(0, params())])
        assert host.apply(torch.zeros(1, VOCAB))[0, 0] == 1

    def test_validate_params_needs_no_instance_and_only_raises_value_errors(self) -> None:
        Add.validate_params(params())
        Add.validate_params(params(add=1))
        with pytest.raises(ValueError, match="add: "):
            Add.validate_params(params(add=True))


class TestHistory:
    def test_lengths_follow_the_live_list(self) -> None:
        host = V1Host(Lengths)
        output: list[int] = []
        host.update(2, added=[new(0, params()), new(1, params(lengths=True), output)])
        for grown in range(3):
            assert host.apply(logits_of(2))[1, :3].tolist() == [3, 3 + grown, grown]
            output.append(9)
            host.quiet()

    def test_tokens_and_their_origin(self) -> None:
        host = V1Host(Weigh)
        output: list[int] = [9]
        host.update(3, added=[new(0, params(weigh=True), output), new(1, params()), new(2, params(weigh=True))])
        for token in (5, 11, 9, 0):
            logits = logits_of(3)
            result = host.apply(logits.clone())
            assert torch.equal(result[0], weighed(logits[0], [5, 6, 7], output))
            assert torch.equal(result[1], logits[1])
            assert torch.equal(result[2], weighed(logits[2], [5, 6, 7], []))
            output.append(token)
            host.quiet()

    def test_only_new_tokens_travel_to_the_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        host = V1Host(Weigh)
        output = list(range(20))
        host.update(2, added=[new(0, params(weigh=True), output), new(1, params(weigh=True), [1])])
        history = host.processor._v1._history
        sent: list[int] = []
        to_device = history._to_device
        monkeypatch.setattr(history, "_to_device", lambda values: sent.append(len(values)) or to_device(values))
        host.apply(logits_of(2))
        host.apply(logits_of(2))  # nothing new
        output.append(3)
        host.apply(logits_of(2))
        lengths = 2 * 2
        assert sent == [lengths + 3 * (23 + 4), lengths, lengths + 3]

    def test_long_histories_widen_in_powers_of_two_and_keep_what_was_staged(self) -> None:
        host = V1Host(Spy)
        output: list[int] = []
        host.update(1, added=[new(0, params(weigh=True), output)])
        for length in (0, 1, 61, 62, 200):
            output += [i % VOCAB for i in range(len(output), length)]
            host.apply(logits_of(1))
            assert host.processor.shown[0] == [5, 6, 7, *output]
        assert host.processor.widths == [64, 64, 64, 128, 256]

    def test_a_list_that_shrinks_is_read_anew(self) -> None:
        host = V1Host(Spy)
        output = [1, 2, 3, 4, 5]
        host.update(1, added=[new(0, params(weigh=True), output)])
        host.apply(logits_of(1))
        del output[2:]
        host.quiet()
        host.apply(logits_of(1))
        assert host.processor.shown[0] == [5, 6, 7, 1, 2]
        output += [8, 9]
        host.apply(logits_of(1))
        assert host.processor.shown[0] == [5, 6, 7, 1, 2, 8, 9]

    def test_a_list_that_shrank_and_grew_between_two_steps_is_read_anew(self) -> None:
        host = V1Host(Spy)
        output = [1, 2, 3]
        host.update(1, added=[new(0, params(weigh=True), output)])
        host.apply(logits_of(1))
        output[1:] = [7, 8, 9]
        host.apply(logits_of(1))
        assert host.processor.shown[0] == [5, 6, 7, 1, 7, 8, 9]

    def test_a_list_emptied_to_nothing_leaves_the_prompt(self) -> None:
        host = V1Host(Spy)
        output = [1, 2, 3]
        host.update(1, added=[new(0, params(weigh=True), output)])
        host.apply(logits_of(1))
        output.clear()
        host.apply(logits_of(1))
        assert host.processor.shown[0] == [5, 6, 7]

    def test_a_resumed_request_brings_a_new_list_object(self) -> None:
        host = V1Host(Spy, max_num_seqs=1)
        output = [1, 2]
        host.update(1, added=[new(0, params(weigh=True), output)])
        host.apply(logits_of(1))
        host.update(0, removed=[0])
        output.append(99)  # the old object is nobody's any more
        again = [1, 2, 3]
        host.update(1, added=[new(0, params(weigh=True), again)])
        host.apply(logits_of(1))
        assert host.processor.shown[0] == [5, 6, 7, 1, 2, 3]
        again.append(4)
        host.apply(logits_of(1))
        assert host.processor.shown[0] == [5, 6, 7, 1, 2, 3, 4]

    def test_a_slots_next_occupant_shows_nothing_of_the_last_ones_tokens(self) -> None:
        host = V1Host(Spy, max_num_seqs=1)
        host.update(1, added=[new(0, params(weigh=True), list(range(30)))])
        host.apply(logits_of(1))
        host.update(1, added=[new(0, params(weigh=True), [4], prompt=[8])])
        logits = logits_of(1)
        result = host.apply(logits.clone())
        assert host.processor.shown[0] == [8, 4]
        assert torch.equal(result[0], weighed(logits[0], [8], [4]))

    def test_a_history_follows_its_request_through_moves(self) -> None:
        host = V1Host(Weigh)
        outputs: list[list[int]] = [[10], [11, 12], [13]]
        host.update(3, added=[new(i, params(weigh=True), output) for i, output in enumerate(outputs)])
        host.apply(logits_of(3))
        host.update(3, moved=[(0, 2, SWAP)])
        outputs[0].append(1)
        logits = logits_of(3)
        result = host.apply(logits.clone())
        for row, output in enumerate(reversed(outputs)):
            assert torch.equal(result[row], weighed(logits[row], [5, 6, 7], output))

    def test_without_prompt_ids_only_the_output_is_known(self) -> None:
        host = V1Host(Weigh)
        host.update(1, added=[new(0, params(weigh=True), [4], prompt=None)])
        logits = logits_of(1)
        assert torch.equal(host.apply(logits.clone())[0], weighed(logits[0], [], [4]))

    def test_neither_list_is_written_to(self) -> None:
        host = V1Host(Weigh)
        prompt, output = [5, 6], [7]
        host.update(1, added=[(0, params(weigh=True), prompt, output)])
        host.apply(logits_of(1))
        assert (prompt, output) == ([5, 6], [7])

    def test_applying_twice_gives_the_same_twice(self) -> None:
        host = V1Host(Weigh)
        host.update(1, added=[new(0, params(weigh=True), [4, 5])])
        logits = logits_of(1)
        assert torch.equal(host.apply(logits.clone()), host.apply(logits.clone()))


class TestPlaceholders:
    """Async scheduling shows -1 for tokens that the host has not seen yet."""

    def test_rows_with_unrepaired_placeholders_stay_as_they_are_with_one_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        host = V1Host(Weigh)
        stuck, fine = [4, -1], [4]
        host.update(2, added=[new(0, params(weigh=True), stuck), new(1, params(weigh=True), fine)])
        with caplog.at_level(logging.WARNING, logger="lpkit"):
            for _ in range(3):
                logits = logits_of(2)
                result = host.apply(logits.clone())
                assert torch.equal(bits(result[0]), bits(logits[0]))
                assert torch.equal(result[1], weighed(logits[1], [5, 6, 7], fine))
                stuck.append(-1)
                fine.append(9)
                host.quiet()
        assert len(caplog.records) == 1
        assert "--logits-processors" in caplog.text
        assert "--no-async-scheduling" in caplog.text

    def test_if_every_row_waits_the_batch_is_untouched(self) -> None:
        host = V1Host(Weigh)
        host.update(1, added=[new(0, params(weigh=True), [-1])])
        logits = logits_of(1)
        assert host.apply(logits) is logits

    def test_a_repaired_placeholder_counts_from_then_on(self) -> None:
        host = V1Host(Spy)
        output = [4, -1]
        host.update(1, added=[new(0, params(weigh=True), output)])
        host.apply(logits_of(1))
        output[1] = 8
        host.apply(logits_of(1))
        assert host.processor.shown[0] == [5, 6, 7, 4, 8]
        output.append(-1)  # seen by update_state, repaired before apply
        host.quiet()
        output[2] = 2
        host.apply(logits_of(1))
        assert host.processor.shown[0] == [5, 6, 7, 4, 8, 2]

    def test_lengths_do_not_need_the_values(self, caplog: pytest.LogCaptureFixture) -> None:
        host = V1Host(Lengths)
        host.update(1, added=[new(0, params(lengths=True), [-1, -1])])
        assert host.apply(logits_of(1))[0, :3].tolist() == [3, 5, 2]
        assert not caplog.records


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


class TestDeclaration:
    def test_process_and_edit_together_are_refused(self) -> None:
        with pytest.raises(TypeError, match="both process and edit"):

            class Both(Weigh):
                def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
                    return logits

    def test_neither_process_nor_edit_is_refused_when_the_engine_constructs_it(self) -> None:
        class Neither(lpkit.LogitsProcessor):
            pass

        with pytest.raises(TypeError, match="Neither must override process or edit"):
            Neither(config(), torch.device("cpu"), False)

    @pytest.mark.parametrize(
        ("attribute", "value", "message"),
        [
            ("stage", "sample", "stage must be one of logits, sampling, not 'sample'; did you mean 'sampling'"),
            ("history", "token", "history must be one of none, length, tokens, not 'token'; did you mean 'tokens'"),
            ("Params", dict, "Params must subclass lpkit.Params"),
            ("supports_spec_decode", True, "reserved for hooks of future vLLM"),
        ],
    )
    def test_mistakes_are_named_when_the_class_is_made(self, attribute: str, value: object, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            type("Wrong", (lpkit.LogitsProcessor,), {attribute: value})

    def test_a_column_cannot_be_assigned_over(self) -> None:
        processor = V1Host(Add).processor
        with pytest.raises(AttributeError, match=r"write amount\[request.slot\] = value"):
            processor.amount = 3

    def test_columns_of_bases_are_inherited_and_instances_share_nothing(self) -> None:
        class More(Add):
            other = lpkit.column(torch.int64, default=4)

        first, second = V1Host(More).processor, V1Host(More).processor
        first.amount[0] = 7.0
        first.apply_staged_writes()
        assert first.amount.all[0] == 7
        assert second.amount.all[0] == 0
        assert second.other.all.tolist() == [4] * 9
