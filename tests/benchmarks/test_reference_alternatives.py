"""What the reference plugins are compared with: their table names them, and what it makes does the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit_conformance.bench.candidates import Parameters
from lpkit_conformance.hosts.steady import SteadyBatch
from lpkit_conformance.hosts.v1 import V1Candidate
from plugins_here import load
from reference_alternatives import TABLE, alternatives

CPU = torch.device("cpu")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""Some alternatives are there on a GPU only."""


@pytest.mark.parametrize("identity", sorted(TABLE))
def test_the_table_names_processors_that_exist(identity: str) -> None:
    module, _, cls = identity.partition(":")
    package = module.partition(".")[0].replace("_", "-")
    root = Path(__file__).resolve().parents[2] / "reference_plugins" / package
    source = (root / "src" / Path(*module.split("."))).with_suffix(".py").read_text(encoding="utf-8")
    assert f"\nclass {cls}(" in source


def test_a_processor_that_nobody_knows_has_no_alternatives() -> None:
    assert list(alternatives("mine:Mine", {}, CPU)) == []


SAME: dict[str, dict[str, Any]] = {
    "lpkit_min_p.processor:MinP": {"min_p_threshold": 0.2},
    "lpkit_dry.processor:Dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1, "dry_breakers": [3]},
    "lpkit_penalties.processor:Penalties": {"penalties_presence": 0.5, "penalties_frequency": 0.25},
    "lpkit_loop_breaker.processor:LoopBreaker": {"loop_times": 2, "loop_tokens": 2, "loop_penalty": 5.0},
    "lpkit_no_repeat_ngram.processor:NoRepeatNgram": {"no_repeat_ngram_size": 2},
    "lpkit_temperature.processor:Temperature": {
        "temperature_low": 0.5,
        "temperature_high": 2.0,
        "temperature_exponent": 1.5,
    },
}
"""Processors and arguments whose alternatives say the same."""

OTHERWISE = ("transformers NoRepeatNGram", "transformers RepetitionPenalty")
"""The one counts the prompt's n-grams, too; the other is another penalty."""


@pytest.mark.parametrize("identity", sorted(SAME))
def test_the_alternatives_do_what_the_plugin_does(identity: str) -> None:
    plugin = V1Candidate(identity, load(identity), Parameters({"extra_args": SAME[identity]}), DEVICE)
    others = [
        item
        for item in alternatives(identity, SAME[identity], DEVICE)
        if not isinstance(item, str) and not item.name.startswith(OTHERWISE)
    ]
    steady = SteadyBatch(4, 8, 32, 1.0, DEVICE)  # so few tokens that spans repeat
    change = steady.change()
    torch.manual_seed(0)
    logits = (torch.randn(4, 8) * 3).to(DEVICE)
    results = []
    for candidate in (plugin, *others):
        candidate.prepare(steady, change)
        candidate.follow()
        with torch.inference_mode():
            results.append(candidate.apply(logits.clone()).log_softmax(-1))
    assert len(results) > 1
    assert not torch.equal(results[0], logits.log_softmax(-1)), "nothing to compare"
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])
