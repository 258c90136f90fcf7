"""V2's buffers, context and calls; test_regenerate.py and ``tests/engine`` compare its steps with vLLM's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lpkit.runtime import Request, V2Engine, V2Row, V2Slots, make_context


def test_a_new_occupant_finds_the_old_tokens_behind_its_own(make_request: Callable[..., Request]) -> None:
    slots = V2Slots(1, max_model_len=16)
    slots.add(make_request("old", prompt=8))
    slots.flush()
    slots.free("old")
    new = make_request("newer", prompt=2)
    slots.add(new)
    slots.flush()
    row = slots.state.all_token_ids.gpu[0].tolist()
    assert row[:2] == new.prompt_token_ids and any(row[2:8]) and slots.state.total_len.gpu[0] == 2


def test_requests_without_a_slot_and_tokens_without_room_are_refused(make_request: Callable[..., Request]) -> None:
    slots = V2Slots(1, max_model_len=8)
    with pytest.raises(ValueError, match="max_model_len"):
        slots.add(make_request("long", prompt=9))
    with pytest.raises(ValueError, match="prompt token ids"):
        slots.add(Request("e", make_request("x").params, None, prompt_len=3))
    slots.add(make_request("a"))
    with pytest.raises(ValueError, match="already"):
        slots.add(make_request("a"))
    with pytest.raises(ValueError, match="taken"):
        slots.add(make_request("b"))
    with pytest.raises(ValueError, match="max_model_len"):
        slots.commit(0, [1] * 9)


def test_the_context_has_the_engines_dtypes_and_groups_rows_by_request() -> None:
    ctx = make_context([V2Row(5, 9, 3), V2Row(2, 4, 7), V2Row(2, 5, -1, 1)], padding=2)
    assert ctx.expanded_idx_mapping.tolist() == [5, 2, 2] and ctx.expanded_idx_mapping.dtype == torch.int64
    assert ctx.idx_mapping.tolist() == [5, 2] and ctx.idx_mapping.dtype == torch.int64
    assert ctx.idx_mapping_np.tolist() == [5, 2] and ctx.idx_mapping_np.dtype == np.intp
    assert ctx.expanded_local_pos.tolist() == [0, 0, 1] and ctx.expanded_local_pos.dtype == torch.int32
    assert ctx.input_ids.tolist() == [3, 7, -1] and ctx.input_ids.dtype == torch.int32
    assert ctx.pos.tolist() == [9, 4, 5] and ctx.pos.dtype == torch.int64
    assert ctx.seq_lens_upper_bound_np.tolist() == [10, 6, 0, 0]
    assert ctx.seq_lens_upper_bound_np.dtype == np.int32
    with pytest.raises(ValueError, match="bounds"):
        make_context([V2Row(0, 0, 0)], bounds=[1, 2])


def test_both_mappings_have_the_width_of_an_older_release() -> None:
    ctx = make_context([V2Row(5, 9, 3), V2Row(2, 4, 7), V2Row(2, 5, -1, 1)], mapping_dtype=torch.int32)
    assert ctx.expanded_idx_mapping.dtype == ctx.idx_mapping.dtype == torch.int32


def engine(recorder: Any, *recorders: Any, **options: Any) -> tuple[V2Engine, list[Any]]:
    calls: list[Any] = []
    made = recorders or (lambda config, states: recorder(config, states, calls=calls),)
    return V2Engine(made, device="cpu", vocab_size=128, **options), calls


def test_processing_works_on_a_private_copy(v2_recorder: Any, make_request: Callable[..., Request]) -> None:
    host, _ = engine(None, lambda config, states: v2_recorder(edit=lambda x: x.fill_(1.0)))
    host.add(make_request("r", extra_args={"x": 1}))
    result = host.step()
    assert result.raw is not None and result.processed is not None
    assert result.raw.std() > 1 and result.processed.std() == 0


def test_custom_processors_run_in_list_order_for_greedy_requests_too(
    v2_recorder: Any, make_request: Callable[..., Request]
) -> None:
    calls: list[Any] = []
    host, _ = engine(
        None,
        lambda config, states: v2_recorder(name="a", calls=calls, edit=lambda x: x * 0),
        lambda config, states: v2_recorder(name="b", calls=calls, edit=lambda x: x.index_fill(1, torch.tensor(77), 9)),
    )
    host.add(make_request("r", extra_args={"x": 1}))
    assert host.step().tokens == {"r": [77]}
    assert [call[0] for call in calls if call[1] == "apply"] == ["a", "b"]
    assert calls[-1][2].abs().sum() == 0
