"""Requests of other engine configurations hold only tokens that the plugin allows and the vocabulary has."""

from __future__ import annotations

import math
from itertools import cycle
from typing import Any

import lpkit
import pytest
import torch
from lpkit.portable.by_slot import BySlot
from lpkit.rules.chain import Rules
from lpkit_conformance.instruments import recorded_steps
from lpkit_conformance.results import IN_PYTHON
from lpkit_conformance.testing import compute_check
from own_edits import CASE, PROCESS_CASE, MinP, Multiplies
from recording_defects import DEFECTS, Far, columns_have_one_number, values_stay
from zoo.correct.v1 import V1Base


class Modes(V1Base):
    """``ban`` lowers a token; ``grammar`` allows ids below 100, and raises for an output that it has forbidden."""

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        mode = (params.extra_args or {}).get("mode")
        return mode and (mode, outputs)

    @classmethod
    def validate_params(cls, params: Any) -> None:
        if (params.extra_args or {}).get("mode") not in (None, "ban", "grammar"):
            raise ValueError("mode must be 'ban' or 'grammar'")

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (mode, outputs) in self.rows.items():
            if mode == "ban":
                logits[row, 7] -= 3
                continue
            if any(token >= 100 for token in outputs):
                raise RuntimeError("the grammar has no such transition")
            logits[row, 100:] = -math.inf
        return logits


class LowersOutputs(V1Base):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = super().enter(params, prompt, outputs)
        return None if bias is None else (bias, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, outputs) in self.rows.items():
            ids = torch.tensor([token for token in outputs if token != -1], dtype=torch.int64)
            assert ids.numel() == 0 or ids.min() >= 0
            logits[row, ids.unique()] -= 1
        return logits


def test_neighbours_of_another_case_may_forbid_tokens() -> None:
    cases = [{"extra_args": {"mode": mode}} for mode in ("ban", "grammar")]
    result = compute_check("LP221", Modes, case=cases[0], others=cases[1:])
    assert result.status == "passed", result.message


def test_a_small_vocabulary_has_as_many_different_outputs_as_tokens() -> None:
    result = compute_check("LP221", LowersOutputs, case={"extra_args": {"bias": 2.5}}, vocab_size=256)
    assert result.status == "passed", result.message


class InPython(Far):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.masked_fill_(logits.softmax(-1) < 0.01 * self.far[rows].unsqueeze(1), -math.inf)


DIFFERS = "different logits than in its own Python"


@pytest.mark.parametrize("host", ["v1", "v2"])
def test_a_recorded_step_is_judged_too_and_a_step_in_python_says_why(host: str) -> None:
    case = {"extra_args": {"far": 2.0}}
    unknown = "it calls `softmax` on a tensor"
    for cls, why in ((Far, ""), (InPython, f"; {IN_PYTHON}{unknown}")):
        result = compute_check("LP221", cls, case=case, host=host)
        assert result.status == "passed", result.message
        assert result.message == f"9 engines{why}"


def columns_stay_at_home(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BySlot, "_record", lambda self: [("mask_far_below_top_", (torch.ones(99, 1), None))])


def conditions_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recorded_steps, "_acting", lambda rows, columns: torch.ones(rows.n, dtype=torch.bool))


DOCUMENT = [
    {"rule": "penalties", "frequency": 0.5, "when": {"every": 2}},
    {"rule": "bias", "ids": [3], "values": [2.0], "when": {"after": 5}},
    {"rule": "bias", "ids": [4], "values": [2.0], "when": {"from": 1}},
]


@pytest.mark.parametrize(("defect", "host"), [(None, "v1"), (None, "v2"), (conditions_are_not_asked, "v1")])
def test_the_steps_of_documents_are_repeated_and_judged(
    defect: Any, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if defect:
        defect(monkeypatch)
    case = {"extra_args": {"rules": DOCUMENT}, "output_token_ids": [5, 2]}
    result = compute_check("LP221", Rules, case=case, host=host)
    assert result.status == ("failed" if defect else "passed"), result.message
    assert (DIFFERS in result.message) is bool(defect)


@pytest.mark.parametrize("defect", [None, columns_have_one_number, values_stay])
@pytest.mark.parametrize("host", ["v1", "v2"])
def test_an_authors_own_step_is_judged_by_slot_too(host: str, defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if defect:
        defect(monkeypatch)
    cls, case = (MinP, PROCESS_CASE) if defect is values_stay else (Multiplies, CASE)
    result = compute_check("LP221", cls, case=case, host=host)
    assert result.status == ("failed" if defect else "passed"), result.message
    assert DIFFERS in result.message if defect else result.message == "9 engines"


@pytest.mark.parametrize(("defect", "host"), list(zip([*DEFECTS, columns_stay_at_home], cycle(("v2", "v1")))))
def test_a_recorded_step_that_differs_is_found(host: str, defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    cases = [{"extra_args": {"far": 2.0, **ids}} for ids in ({}, {"ids": [1]})]
    result = compute_check("LP221", Far, case=cases[0], others=cases[1:], host=host)
    assert result.status == "failed"
    assert DIFFERS in result.message
