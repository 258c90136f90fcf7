"""The host behind exports follows rows without being told of arrivals, departures or moves."""

from __future__ import annotations

import random

import lpkit
import pytest
import torch
from lpkit.export.host import ExportHost, follow, sampling_params
from lpkit.history.on_host import V1Row

VOCAB = 40


class Counts(lpkit.LogitsProcessor):
    """Takes ``strength`` from each token for each time that it was generated."""

    history = "tokens"

    class Params(lpkit.Params, prefix="counts_"):
        strength: float

    strength = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.strength[request.slot] = request.params.strength
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        ids = torch.where(rows.is_output, rows.tokens, VOCAB)
        counts = torch.zeros(rows.n, VOCAB + 1).scatter_add_(1, ids, torch.ones(ids.shape))[:, :VOCAB]
        return logits - counts * self.strength[rows].unsqueeze(1)


def expected(logits: torch.Tensor, row: V1Row) -> torch.Tensor:
    args = row.params.extra_args
    if not args:
        return logits
    return logits - torch.bincount(torch.tensor(row.output_ids, dtype=torch.int64), minlength=VOCAB) * next(
        iter(args.values())
    )


@pytest.mark.parametrize("seed", range(3))
def test_rows_may_come_go_and_change_places_in_every_step(seed: int) -> None:
    draw = random.Random(seed)
    host = ExportHost(Counts, VOCAB, torch.device("cpu"))
    kinds = [sampling_params(Counts, given) for given in ({"strength": 1.5}, {"counts_strength": 2.0}, {})]
    rows: list[V1Row] = []
    for step in range(40):
        rows = [row for row in rows if draw.random() < 0.85]
        rows += [V1Row(draw.choice(kinds), [1, 2], []) for _ in range(draw.randint(0, 3))]
        draw.shuffle(rows)
        logits = torch.randn(len(rows), VOCAB, generator=torch.Generator().manual_seed(step))
        kept = logits.clone()
        edited = host.process(logits, rows)
        assert torch.equal(logits, kept)
        for i, row in enumerate(rows):
            torch.testing.assert_close(edited[i], expected(logits[i], row))
            row.output_ids.append(draw.randrange(VOCAB))


def test_a_row_that_shows_more_of_the_same_tokens_is_the_same_request() -> None:
    params = sampling_params(Counts, {"strength": 1.0})
    row = follow(None, params, [1], [])
    assert follow(row, params, [1], [5]) is row
    assert row.output_ids == [5]


@pytest.mark.parametrize(("prompt", "output"), [([1], [6, 7]), ([1], []), ([2], [5, 6])])
def test_a_row_that_shows_other_tokens_is_another_request(prompt: list[int], output: list[int]) -> None:
    params = sampling_params(Counts, {"strength": 1.0})
    row = follow(None, params, [1], [5])
    other = follow(row, params, prompt, output)
    assert other is not row
    assert (other.prompt_ids, other.output_ids) == (prompt, output)


def test_an_unknown_argument_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no parameter 'strenght'; did you mean 'strength'\?"):
        sampling_params(Counts, {"strenght": 1.0})


def test_an_argument_given_by_key_and_by_field_is_refused() -> None:
    with pytest.raises(ValueError, match="counts_strength is given twice"):
        sampling_params(Counts, {"strength": 1.0, "counts_strength": 1.0})


def test_an_argument_that_breaks_a_rule_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="counts_strength"):
        sampling_params(Counts, {"strength": "much"})


def test_logits_of_half_precision_come_back_in_it() -> None:
    host = ExportHost(Counts, VOCAB, torch.device("cpu"))
    row = V1Row(sampling_params(Counts, {"strength": 1.0}), [1], [3])
    logits = torch.randn(1, VOCAB).to(torch.bfloat16)
    edited = host.process(logits, [row])
    assert edited.dtype == torch.bfloat16
    assert torch.equal(edited[0, :3], logits[0, :3])
    assert edited[0, 3] < logits[0, 3]
