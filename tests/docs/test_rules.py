"""The page of rules lists every rule with its parameters, and its examples are documents."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lpkit.rules.document import RULES, steps_of
from lpkit.rules.presets import ELSEWHERE, NAMES

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(r"^\| `(\w+)` \| (.*) \| (.*) \| `(.*)` \|$", re.M)


def test_each_rule_has_its_row_with_its_parameters_and_an_example() -> None:
    rows = ROW.findall((DOCS / "reference" / "rules.md").read_text(encoding="utf-8"))
    assert [name for name, *_ in rows] == list(RULES)
    for name, does, parameters, example in rows:
        rule = RULES[name]
        assert does == rule.does
        assert tuple(re.findall(r"`(\w+)`", parameters)) == rule.keys
        (step,) = steps_of([json.loads(example)])
        assert step.rule == name


def test_every_name_of_another_engine_is_in_the_table() -> None:
    page = (DOCS / "how-to" / "rules.md").read_text(encoding="utf-8")
    for name in {*NAMES, *ELSEWHERE} - {"mirostat_tau", "mirostat_eta", "rep_pen_slope"}:
        assert f"`{name}`" in page, name
