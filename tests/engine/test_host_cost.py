"""The host's part of a step: launches, operations, allocations, and for some plugins instructions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from known_launches import LAUNCHES
from separate import ROOT, WITHOUT_VLLM, separately

TOOLS = ROOT / "conformance" / "tools"

CHAINS = {"rules": 4, "rules, with a condition": 3, "an edit of its own": 1, "README: MinP": 2}
"""Launches of documents' steps and of authors' classes; those of other rules are known without an engine."""

MOST_INSTRUCTIONS = {
    ("min-p", "V1"): 35,
    ("min-p", "V2"): 45,
    ("README: MinP", "V1"): 35,
    ("README: MinP", "V2"): 45,
    ("target-token", "V1"): 60,
    ("target-token", "V2"): 60,
    ("penalties", "V1"): 50,
    ("penalties", "V2"): 50,
}
"""Thousands, for a step of 8 requests."""

COUNTS = """
import json, sys
from pathlib import Path
from host_cost.driver import build, install
driver = install(build(Path(sys.argv[1])))

from host_cost.measure import counts
from host_cost.steps import of_plugin, plugins

found = {}
given = [*plugins()]
conditional = '[{"rule": "penalties", "repetition": 1.3, "when": {"after": [7, 8]}}]'
rules = next(cls for name, cls, _ in given if name == "rules")
given.append(("rules, with a condition", rules, {"extra_args": {"rules": conditional}}))
for name, cls, case in given:
    for runner in ("v1", "v2"):
        few, many = (counts(of_plugin(name, cls, case, runner, batch), driver)[:3] for batch in (2, 9))
        assert few == many, (name, runner, few, many)
        found.setdefault(name, []).append(few)
print("found", json.dumps(found))
"""


def python(*arguments: str) -> str:
    return separately("-W", "ignore", *arguments, path=TOOLS, seconds=900)


def test_a_step_takes_the_launches_and_operations_that_are_known(tmp_path: Path) -> None:
    printed = python("-c", WITHOUT_VLLM + COUNTS, str(tmp_path))
    found = json.loads(printed.partition("found ")[2])
    on_v2 = {name.removeprefix("lpkit-"): counts[0][1] for name, counts in LAUNCHES.items()} | CHAINS
    # Recorded rules dispatch no operation of torch and take no memory, on each runner.
    known = {name: ((launches, 0, 0),) * 2 for name, launches in on_v2.items()}
    assert {name: found[name] for name in known} == {name: [*map(list, sides)] for name, sides in known.items()}


@pytest.mark.callgrind
def test_a_recorded_step_takes_few_instructions(tmp_path: Path) -> None:
    names = dict.fromkeys(name for name, _ in MOST_INSTRUCTIONS)
    chosen = [part for name in names for part in ("--only", name)]
    printed = python("-m", "host_cost", "--work", str(tmp_path), "--batch", "8", *chosen)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()]
    found = {(row[0], row[1]): int(row[7]) for row in rows if row[0] in names}
    assert found.keys() == MOST_INSTRUCTIONS.keys()
    assert not {key: number for key, number in found.items() if number > MOST_INSTRUCTIONS[key]}
