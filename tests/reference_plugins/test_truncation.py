"""lpkit-truncation against transformers' warpers, and the published formulas of those that it does not have."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit_truncation import Truncation
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

ORACLES = {
    "epsilon": "transformers' EpsilonLogitsWarper",
    "eta": "transformers' EtaLogitsWarper",
    "typical": "transformers' TypicalLogitsWarper",
    "top_a": "top-a's definition in float64",
    "tail_free": "text-generation-webui's tail-free sampling in float64",
}
THRESHOLDS = [0.0005, 0.004, 0.02, 0.1, 0.4, 0.9]


def top_a(row: torch.Tensor, a: float) -> torch.Tensor:
    shares = row.double().softmax(-1)
    return row.masked_fill(shares < a * shares.max() ** 2, -math.inf)


def tail_free(row: torch.Tensor, z: float) -> torch.Tensor:
    """text-generation-webui's TailFreeLogitsWarper, in float64."""
    ranked, order = row.double().sort(descending=True)
    curvature = ranked.softmax(-1).diff().diff().abs()
    removed = (curvature / curvature.sum()).cumsum(-1) > z
    removed = torch.cat((torch.tensor([False]), removed, torch.tensor([True])))
    return row.masked_fill(torch.zeros_like(removed).scatter(0, order, removed), -math.inf)


def warped(rules: Any, rule: str, row: torch.Tensor, threshold: float) -> torch.Tensor:
    if rule in ("top_a", "tail_free"):
        return (top_a if rule == "top_a" else tail_free)(row, threshold)
    warper = getattr(rules, ORACLES[rule].split()[-1])(threshold)
    expected: torch.Tensor = warper(None, row.double().unsqueeze(0))[0].float()
    return expected


def requests(rule: str) -> list[Asked]:
    return [
        Asked({"truncation_rule": rule, "truncation_threshold": t}, temperature=0.4 + 0.3 * i)
        for i, t in enumerate(THRESHOLDS)
    ]


@ON_EVERY_HOST
@pytest.mark.parametrize("vocab", [50, 20_000])
@pytest.mark.parametrize("rule", ["epsilon", "eta", "top_a", "typical", "tail_free"])
def test_it_keeps_what_the_oracle_keeps(applied: Applied, rule: str, vocab: int, transformers_rules: Any) -> None:
    logits = logits_of(len(THRESHOLDS), vocab, seed=vocab) * 0.5
    logits[:, ::5] = -math.inf
    result = applied(Truncation, logits, requests(rule))
    sizes = set()
    for row, threshold in enumerate(THRESHOLDS):
        expected = warped(transformers_rules, rule, logits[row], threshold)
        agree(result[row] > -math.inf, expected > -math.inf, ORACLES[rule], "which tokens stay")
        sizes.add(int((expected > -math.inf).sum()))
    assert len(sizes) > 1


@ON_EVERY_HOST
def test_rules_do_not_mix_in_a_batch(applied: Applied, transformers_rules: Any) -> None:
    rules = ["typical", "epsilon", "tail_free", "eta", "top_a"] * 4
    asked = [Asked({"truncation_rule": rule, "truncation_threshold": 0.3}) for rule in rules]
    logits = logits_of(len(rules), 400)
    result = applied(Truncation, logits, [*asked[:-1], Asked(None)])
    for row, rule in enumerate(rules[:-1]):
        expected = warped(transformers_rules, rule, logits[row], 0.3)
        assert torch.equal(result[row] > -math.inf, expected > -math.inf)
    assert torch.equal(result[-1], logits[-1])
