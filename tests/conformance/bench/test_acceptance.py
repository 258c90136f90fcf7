"""What a processor costs in drafts: the mass that its distribution shares with the model's."""

from __future__ import annotations

import math
from typing import Any

import lpkit
import pytest
import torch
from lpkit_conformance.bench import run
from lpkit_conformance.bench.acceptance import acceptance, overlap, tokens_per_step
from lpkit_conformance.settings.cases import Case

CPU = torch.device("cpu")


class Only(lpkit.LogitsProcessor):
    """Leaves the tokens below a number."""

    class Params(lpkit.Params):
        below: int

    below = lpkit.column(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.below[request.slot] = request.params.below
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        gone = torch.arange(logits.shape[1], device=logits.device) >= self.below[rows].unsqueeze(1)
        return logits.masked_fill_(gone, -math.inf)


def case_of(below: int, **fields: Any) -> Case:
    return Case.parse({"extra_args": {"below": below}, **fields})


def test_a_draft_is_accepted_with_the_mass_that_both_distributions_share() -> None:
    before = torch.tensor([[0.5, 0.3, 0.2]]).log()
    after = torch.tensor([[0.0, 0.6, 0.4]]).log()
    assert overlap(before, after, torch.tensor([1.0])).tolist() == pytest.approx([0.5])
    assert overlap(before, before, torch.tensor([0.7])).tolist() == pytest.approx([1.0])


def test_the_temperature_is_both_sides() -> None:
    before, after = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    best = torch.sigmoid(torch.tensor(2.0 / 0.5)).item()
    assert overlap(before, after, torch.tensor([0.5])).tolist() == pytest.approx([1.5 - best])


def test_greedy_requests_accept_the_models_best_token_if_it_stays_the_best() -> None:
    before = torch.tensor([[3.0, 1.0], [3.0, 1.0]])
    after = torch.tensor([[2.0, 1.0], [0.0, 1.0]])
    assert overlap(before, after, torch.zeros(2)).tolist() == [1.0, 0.0]


def test_a_step_gives_the_accepted_drafts_and_one_more() -> None:
    text = {("a", n): chance for n, chance in enumerate((0.5, 0.25, 1.0))}
    assert tokens_per_step([text], 1) == pytest.approx(1 + (0.5 + 0.25 + 1.0) / 3)
    assert tokens_per_step([text], 3) == pytest.approx(1 + 0.5 + 0.125 + 0.125)


def test_the_more_a_processor_rules_out_the_fewer_drafts_are_accepted() -> None:
    everything, half, few = (acceptance(Only, case_of(below), CPU) for below in (512, 256, 32))
    assert (everything.mean, everything.changed, everything.tokens_per_step["3"]) == pytest.approx((1.0, 0.0, 4.0))
    assert few.mean < half.mean < 0.9
    assert few.lowest < few.mean
    assert 1 < few.tokens_per_step["1"] < few.tokens_per_step["5"] < half.tokens_per_step["5"] < 6


def test_another_seed_is_another_model() -> None:
    assert acceptance(Only, case_of(64), CPU, seed=1) != acceptance(Only, case_of(64), CPU)


def test_the_bench_estimates_instead_of_timing(tmp_path: Any) -> None:
    file = tmp_path / "only.py"
    file.write_text(
        "import lpkit\n\n\nclass Nothing(lpkit.LogitsProcessor):\n"
        "    def process(self, logits, rows):\n        return logits * 2\n",
        encoding="utf-8",
    )
    (found,) = run.run([f"{file}:Nothing"], run.Options(drafts=True)).targets
    assert (found.error, found.points, found.measured) == ("", (), True)
    (case,) = found.drafts
    assert (case.case, case.changed) == ("{}", 1.0)
    assert 0 < case.mean < 1
