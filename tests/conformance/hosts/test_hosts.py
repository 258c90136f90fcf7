"""Hosts: the plugin's calls and arguments, in the engine's own form."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from lpkit import v1, v2
from lpkit.v1 import BatchUpdate, MoveDirectionality
from lpkit_conformance.hosts import PluginError
from lpkit_conformance.hosts.v1 import V1Host
from lpkit_conformance.hosts.v2 import Manner, V2Host
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.subject.worlds import SPECULATING, USUAL, World
from zoo.registry import Case

ONE_WAY, SWAP = MoveDirectionality.UNIDIRECTIONAL, MoveDirectionality.SWAP


class V1Log(v1.LogitsProcessor):
    """Records its calls."""

    claim = False

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.updates: list[BatchUpdate | None] = []
        self.applies: list[torch.Tensor] = []

    def is_argmax_invariant(self) -> bool:
        return self.claim

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self.updates.append(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.applies.append(logits.clone())
        return logits


class Invariant(V1Log):
    claim = True


class V2Log(v2.LogitsProcessor):
    wanted = True

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        self.config, self.states = vllm_config, req_states
        self.slots: list[int] = []
        self.flushes = 0
        self.applies: list[v2.LogitsContext] = []

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.slots.append(req_idx)
        return self.wanted

    def apply_staged_writes(self) -> None:
        self.flushes += 1

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        self.applies.append(ctx)
        return logits


class V2Idle(V2Log):
    wanted = False


def subject(cls: Any, host: str) -> Subject:
    return Subject.of("x", cls, host, Case.parse({"extra_args": {"any": 1.0}}))


def v1_run(ops: list[Op], cls: type[V1Log] = V1Log) -> tuple[V1Host, list[Any]]:
    host = V1Host(subject(cls, "v1"), 8)
    return host, list(host.run(ops))


THREE = [Arrive("a"), Arrive("b"), Arrive("c"), Step()]


@pytest.mark.parametrize(
    ("ops", "update"),
    [
        ([Finish("b"), Arrive("d"), Step()], (3, [], [1], [])),
        ([Finish("a"), Step()], (2, [], [], [(2, 0, ONE_WAY)])),
        ([Finish("c"), Step()], (2, [2], [], [])),
        ([Finish("a"), Swap(0, 1), Step()], (2, [], [], [(2, 0, ONE_WAY), (0, 1, SWAP)])),
        ([Finish("a"), Finish("b"), Finish("c"), Step()], (0, [2, 1, 0], [], [])),
        ([Step()], None),
        ([Idle()], None),
    ],
)
def test_v1_reports_the_changes_of_a_step_as_the_engine_does(ops: list[Op], update: Any) -> None:
    host, seen = v1_run([*THREE, *ops])
    sent = host.processor.updates[1]
    assert (sent and (sent.batch_size, sent.removed, [row for row, *_ in sent.added], sent.moved)) == update
    assert len(seen) == 1 + (sent is None or sent.batch_size > 0) - (ops == [Idle()])


@pytest.mark.parametrize("new_list", [False, True])
def test_v1_a_resumed_request_brings_its_outputs_in_the_same_or_in_a_new_list(new_list: bool) -> None:
    host, _ = v1_run([Arrive("a"), Arrive("b"), Step(3), Preempt("a"), Step(), Resume("a", new_list), Step()])
    first = next(item for item in host.processor.updates[0].added if item[0] == 0)[3]
    resumed = host.processor.updates[-1].added[0][3]
    assert len(resumed) == 4  # three of before, one of the step since
    assert (resumed is first) is not new_list


def test_v1_partial_prefills_have_rows_whose_token_is_thrown_away() -> None:
    host, seen = v1_run([Arrive("a", chunks=2), Step(4)])
    assert [item.rows[0].discarded for item in seen] == [True, True, False, False]
    assert len(host.pool.requests["a"].request.output_token_ids) == 2
    # Their logits belong to other positions, as in an engine.
    assert not torch.equal(seen[0].before, seen[2].before)


def test_v1_an_argmax_invariant_processor_comes_after_temperature_and_not_for_greedy_batches() -> None:
    host, seen = v1_run([Arrive("a", greedy=True), Step(), Arrive("b"), Step()], Invariant)
    assert len(host.processor.applies) == 1
    assert [row.discarded for row in seen[1].rows] == [True, False]
    params = host.pool.requests["b"].request.params
    raw = host.subject.model.rows([("b", seen[1].rows[1].position)])
    assert torch.equal(seen[1].before[1:], raw / params.temperature)


# -- V2 ------------------------------------------------------------------------------------------------------


def v2_run(
    ops: list[Op], cls: type[V2Log] = V2Log, manner: Manner | None = None, world: World = USUAL
) -> tuple[V2Host, list[Any]]:
    host = V2Host(subject(cls, "v2").having(world=world), 4, manner)
    return host, list(host.run(ops))


def test_v2_flushes_on_every_step_and_applies_only_if_someone_wants_it() -> None:
    host, seen = v2_run([Arrive("a"), Step(2), Idle(), Step()])
    assert host.processor.flushes == 4
    assert len(host.processor.applies) == len(seen) == 3


@pytest.mark.parametrize(
    ("options", "opens"),
    [
        ({}, False),
        ({"temperature": 0.0}, False),
        ({"temperature": 0.7}, True),
        ({"min_p": 0.1}, True),
        ({"top_k": 512}, False),
        ({"top_k": 511}, True),
        ({"top_p": 0.9}, True),
        ({"temperature": 0.0, "presence_penalty": 0.5}, True),
        ({"temperature": 0.0, "repetition_penalty": 1.5}, True),
        ({"temperature": 0.0, "logit_bias": {3: 1.0}}, True),
        ({"temperature": 0.0, "allowed_token_ids": [1, 2]}, True),
        ({"temperature": 0.0, "min_tokens": 2}, False),
        ({"temperature": 0.0, "min_tokens": 2, "stop_token_ids": [5]}, True),
    ],
)
def test_v2_applies_for_a_request_that_declines_only_if_a_builtin_stage_needs_the_logits(
    options: dict[str, Any], opens: bool
) -> None:
    case = Case.parse({"extra_args": {"any": 1.0}, "temperature": 1.0, **options})
    host = V2Host(Subject.of("x", V2Idle, "v2", case), 4)
    seen = list(host.run([Arrive("a"), Step()]))
    assert bool(host.processor.applies) is opens
    assert torch.equal(seen[0].before, seen[0].after)


def test_v2_partial_prefills_see_a_part_of_the_prompt() -> None:
    host, seen = v2_run([Arrive("a", prompt_len=6, chunks=2), Step(4)])
    assert [int(ctx.pos[0]) for ctx in host.processor.applies] == [3, 4, 5, 6]
    assert [item.rows[0].discarded for item in seen] == [True, True, False, False]


def test_v2_drafts_have_rows_of_their_own_and_unknown_ones_are_placeholders() -> None:
    host, seen = v2_run([Arrive("a", prompt_len=5), Step(), Speculate(3, 1), Step()])
    ctx = host.processor.applies[1]
    assert ctx.expanded_local_pos.tolist() == [0, 1, 2, 3]
    assert ctx.pos.tolist() == [5, 6, 7, 8]
    assert ctx.input_ids.tolist()[2:] == [-1, -1]
    assert [row.discarded for row in seen[1].rows] == [False, False, True, True]
    request = host.pool.requests["a"].request
    assert ctx.input_ids.tolist()[:2] == request.output_token_ids[:2]
    assert len(request.output_token_ids) == 1 + 2 + 1


def test_v2_splits_a_step_into_calls_that_cover_every_row_once() -> None:
    ops: list[Op] = [*(Arrive(name) for name in "abcd"), Step()]
    host, seen = v2_run(ops, manner=Manner(split=3))
    assert len(host.processor.applies) == 2
    assert sorted(row.request for item in seen for row in item.rows) == ["a", "b", "c", "d"]


def test_v2_a_call_may_have_lost_all_its_drafts_where_drafts_are_configured() -> None:
    ops: list[Op] = [*(Arrive(name) for name in "abcd"), Step(), *[Speculate(1, 0) for _ in range(20)]]
    host, _ = v2_run(ops, manner=Manner(trim=True, split=4), world=SPECULATING)
    calls = [call for call in host.processor.applies if call.seq_lens_upper_bound_np.max() > int(call.pos.max()) + 1]
    assert len(calls) > 40
    assert any(len(call.pos) == len(call.idx_mapping_np) for call in calls)
    speculation = host.processor.config.speculative_config
    assert speculation.num_speculative_tokens >= 1 and speculation.enable_adaptive_verification


def slack(ops: list[Op]) -> list[int]:
    """By call of one request: how far its bound is above what its last row sees."""
    host, _ = v2_run([Arrive("a"), *ops], world=SPECULATING)
    return [int(call.seq_lens_upper_bound_np[0]) - int(call.pos[-1]) - 1 for call in host.processor.applies]


def test_v2_bounds_are_exact_behind_a_step_without_tokens_and_for_who_comes_back() -> None:
    assert slack([Step(), Speculate(3, 0), Idle(), Step()]) == [0, 0, 0]
    assert slack([Step(), Speculate(3, 0), Preempt("a"), Resume("a"), Step()]) == [0, 0, 0]


def test_v2_pads_bounds_and_changes_the_mapping_type_on_demand() -> None:
    host, _ = v2_run([Arrive("a"), Step()], manner=Manner(padding=3, mapping=torch.int32))
    ctx = host.processor.applies[0]
    assert ctx.seq_lens_upper_bound_np.tolist()[1:] == [0, 0, 0]
    assert ctx.expanded_idx_mapping.dtype == torch.int32


# -- both ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [None, torch.zeros(1, 8), torch.zeros(2, 512, dtype=torch.float16), 7])
def test_a_result_the_engine_cannot_use_is_the_plugins_error(result: Any) -> None:
    class Bad(V1Log):
        def apply(self, logits: torch.Tensor) -> Any:
            return result

    with pytest.raises(PluginError, match="apply: returned"):
        v1_run([Arrive("a"), Arrive("b"), Step()], Bad)


def test_an_exception_names_the_method_and_the_line() -> None:
    class Bad(V1Log):
        def update_state(self, batch_update: BatchUpdate | None) -> None:
            raise KeyError(random.random())

    with pytest.raises(PluginError, match="update_state: raised KeyError") as caught:
        v1_run([Arrive("a"), Step()], Bad)
    assert __file__ in caught.value.location
