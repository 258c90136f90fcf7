"""The documentation's pictures show what the runtime does, on a background of their own, and stand on a page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from lpkit.runtime import V1Engine, V2Engine
from pictures import comparison, life, pictures, stages

DOCS = Path(__file__).resolve().parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return pictures()


def test_each_picture_has_a_name_a_background_and_colours_for_both_schemes(drawn: dict[str, str]) -> None:
    for name, text in drawn.items():
        root = ET.fromstring(text)
        assert root.findtext(f"{SVG}title"), name
        card = next(item for item in root.iter(f"{SVG}rect") if item.get("class") == "card")
        assert [card.get(side) for side in ("x", "y", "width", "height")] == root.attrib["viewBox"].split(), name
        assert "prefers-color-scheme: dark" in text, name


def test_each_picture_is_on_a_page_and_described_there(drawn: dict[str, str]) -> None:
    pages = "\n".join(page.read_text("utf-8") for page in DOCS.rglob("*.md"))
    for name in drawn:
        (described,) = re.findall(rf"!\[([^\]]+)\]\([./]*pictures/{re.escape(name)}\)", pages)
        assert len(described) > 40


def test_only_the_request_that_took_over_a_row_differs_from_itself_alone() -> None:
    verdicts = list(comparison.verdicts(list(comparison.play(comparison.OPS))))
    assert [(step, name) for step, name, same in verdicts if not same] == [(3, "D")]
    assert len(verdicts) == 8


def test_the_order_of_the_stages_is_the_samplers() -> None:
    on_v1 = stages.order(V1Engine, [stages.AtLogits, stages.AtSampling])
    on_v2 = stages.order(V2Engine, [stages.OnV2])
    assert on_v1.index("logit bias") < on_v1.index("processors, stage “logits”") < on_v1.index("penalties")
    assert on_v1.index("min-p") < on_v1.index("processors, stage “sampling”") < on_v1.index("top-k, top-p")
    assert on_v2.index("bad words") < on_v2.index("processors, both stages") < on_v2.index("thinking budget")
    built_in = {name for name in stages.NAMES.values() if not name.startswith("processors")}
    assert built_in <= set(on_v1)
    assert built_in <= set(on_v2)


def test_the_life_has_a_discarded_row_a_recomputation_and_drafts() -> None:
    lines = {line.title: line for line in life.play()}
    assert lines["prefill, first chunk"].note.endswith("its token is discarded")
    assert lines["prefill, first chunk"].new == 0
    resumed = lines["resumed: everything is computed again"]
    assert (resumed.computed, resumed.fed) == (0, resumed.known)
    drafts = lines["decode with two drafts"]
    assert (drafts.drafts, drafts.accepted, drafts.new) == (2, 1, 2)
