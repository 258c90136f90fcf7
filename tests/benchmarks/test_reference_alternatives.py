"""What the reference plugins are compared with: their table names them, and what it makes does the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lpkit_conformance.hosts.steady import SteadyBatch
from reference_alternatives import TABLE, alternatives

CPU = torch.device("cpu")


@pytest.mark.parametrize("identity", sorted(TABLE))
def test_the_table_names_processors_that_exist(identity: str) -> None:
    module, _, cls = identity.partition(":")
    package = module.partition(".")[0].replace("_", "-")
    root = Path(__file__).resolve().parents[2] / "reference_plugins" / package
    source = (root / "src" / Path(*module.split("."))).with_suffix(".py").read_text(encoding="utf-8")
    assert f"\nclass {cls}(" in source


def test_a_processor_that_nobody_knows_has_no_alternatives() -> None:
    assert list(alternatives("mine:Mine", {}, CPU)) == []


def test_transformers_masks_what_min_p_masks() -> None:
    found = list(alternatives("lpkit_min_p.processor:MinP", {"min_p_threshold": 0.2}, CPU))
    (warper,) = [item for item in found if not isinstance(item, str) and item.name.startswith("transformers")]
    (rows,) = [item for item in found if not isinstance(item, str) and item.name.startswith("request")]
    steady = SteadyBatch(4, 500, 8, 1.0, CPU)
    change = steady.change()
    logits = torch.randn(4, 500) * 3
    for candidate in (warper, rows):
        candidate.prepare(steady, change)
        candidate.follow()
    with torch.inference_mode():
        assert torch.equal(warper.apply(logits.clone()), rows.apply(logits.clone()))
