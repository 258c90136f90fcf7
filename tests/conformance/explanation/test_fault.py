"""The second look at a failing program, and the line of a method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit import v2
from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation.fault import look_again
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.explanation.styles import style_of
from lpkit_conformance.hosts import default_host
from lpkit_conformance.programs.generate import Arrive, Finish, Step
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from zoo.bases import Boost
from zoo.lp201 import LastAdmitted, LateBinding
from zoo.lp202 import StaleOnDecline
from zoo.lp221 import NeedsEos


@pytest.mark.parametrize("name", ["apply", "update_state", "add_request", "__init__"])
@pytest.mark.parametrize("plugin", [LateBinding, LastAdmitted, NeedsEos])
def test_no_line_is_that_of_a_class(plugin: type, name: str) -> None:
    file, _, line = method_location(plugin, name).rpartition(":")
    assert " def " in Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]


@pytest.mark.parametrize(
    ("cls", "host", "style"),
    [
        (StaleOnDecline, "v1", "raw"),
        (Boost, "v2", "raw"),
        (LastAdmitted, "v1", "portable"),
        (LastAdmitted, "v2", "portable"),
        (LateBinding, "v2", "adapter"),
    ],
)
def test_the_style_is_what_the_author_wrote(cls: Any, host: str, style: str) -> None:
    assert style_of(cls, host) == style


class CountsItsCalls(v2.LogitsProcessor):
    """Raises a token by the number of its calls."""

    CASE = {"extra_args": {"bias": 2.0}}

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        self.req_states = req_states
        self.used: dict[int, bool] = {}
        self.calls = 0

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.used[req_idx] = bool((params.extra_args or {}).get("bias"))
        return self.used[req_idx]

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        self.calls += 1
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            logits[row, 6] += self.calls * self.used[slot]
        return logits


def test_a_new_instance_that_goes_wrong_in_another_way_proves_nothing_about_what_apply_reads() -> None:
    subject = Subject.of("x", CountsItsCalls, "v2", Case.parse(CountsItsCalls.CASE))
    ops = [Arrive("a", 0), Step(), Finish("a"), Arrive("b", 0), Step()]
    (seen,) = [item for item in default_host(subject, 8).run(ops) if item.step == 2]
    mismatch = Mismatch(2, 0, "b", 5, 7, 0.0, float(seen.after[0, 7]), {}, "wrong")  # at a token that both leave alone
    assert not look_again(subject, ops, 8, mismatch, default_host).read
