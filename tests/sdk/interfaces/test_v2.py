"""Our V2 definitions behave as vLLM's."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from types import SimpleNamespace
from typing import Any

import pytest
from lpkit.interfaces import v2_interface as v2
from lpkit.interfaces.sampling_params import SamplingParams

STATE_FIELDS = ["device", "max_num_reqs", "vocab_size", "all_token_ids", "prompt_len", "prefill_len", "total_len"]
CONTEXT_FIELDS = [
    "expanded_idx_mapping",
    "idx_mapping",
    "idx_mapping_np",
    "expanded_local_pos",
    "input_ids",
    "pos",
    "seq_lens_upper_bound_np",
]


class Identity(v2.LogitsProcessor):
    def apply(self, logits: Any, ctx: v2.LogitsContext) -> Any:
        return logits


def test_fields_come_in_vllms_order() -> None:
    assert [field.name for field in fields(v2.LogitsProcRequestState)] == STATE_FIELDS
    assert [field.name for field in fields(v2.LogitsContext)] == CONTEXT_FIELDS


def test_state_and_context_are_frozen() -> None:
    state = v2.LogitsProcRequestState(*range(7))  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        state.vocab_size = 1  # type: ignore[misc]


def test_the_state_is_a_view_of_the_runners_request_state() -> None:
    runner = SimpleNamespace(**{name: object() for name in STATE_FIELDS}, other=1)
    state = v2.LogitsProcRequestState.from_request_state(runner)
    assert all(getattr(state, name) is getattr(runner, name) for name in STATE_FIELDS)


def test_only_apply_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        v2.LogitsProcessor(None, None)  # type: ignore[abstract, arg-type]
    with pytest.raises(NotImplementedError):
        v2.LogitsProcessor.apply(object(), None, None)  # type: ignore[arg-type]
    Identity(None, None)  # type: ignore[arg-type]


def test_an_undecided_processor_takes_every_request() -> None:
    processor = Identity(None, None)  # type: ignore[arg-type]
    assert processor.add_request(0, SamplingParams()) is True
    assert processor.apply_staged_writes() is None
    assert Identity.validate_params(SamplingParams()) is None
