"""The table of alternatives names processors that exist, and an alternative does what its processor does."""

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


def test_another_processor_has_no_alternatives() -> None:
    assert list(alternatives("mine:Mine", {}, CPU)) == []


SAME: dict[str, dict[str, Any]] = {
    "lpkit_min_p.processor:MinP": {"min_p_threshold": 0.2},
    "lpkit_logit_bias.processor:LogitBias": {"logit_bias_ids": [3, 5], "logit_bias_values": [1.5, -2.0]},
    "lpkit_truncation.processor:Truncation": {"truncation_rule": "epsilon", "truncation_threshold": 0.05},
}
"""Processors and arguments whose alternatives give the same distribution."""


@pytest.mark.parametrize("identity", sorted(SAME))
def test_the_alternatives_do_what_the_plugin_does(identity: str) -> None:
    plugin = V1Candidate(identity, load(identity), Parameters({"extra_args": SAME[identity]}), DEVICE)
    others = [item for item in alternatives(identity, SAME[identity], DEVICE) if not isinstance(item, str)]
    steady = SteadyBatch(4, 8, 32, 1.0, DEVICE)
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
