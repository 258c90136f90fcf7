"""``make quick``: the tests that a change can reach, nearest first, and its list of omitted tests."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import quick
from layers.imports import ROOT

LINES = "tests/conformance/explanation/test_findings.py"
RNG = "tests/sdk/test_rng.py"
FACTS = "tests/conformance/vllm_api/test_facts.py"


@pytest.mark.parametrize(
    ("file", "near", "far"),
    [
        ("sdk/lpkit/rng.py", RNG, LINES),
        ("tests/conformance/zoo/lp201/adapter.py", LINES, RNG),
        ("conformance/lpkit_conformance/vllm_api/facts.toml", FACTS, RNG),  # a table, which a module beside it reads
        ("reference_plugins/lpkit-min-p/README.md", "tests/conformance/bench/test_launches.py", RNG),
    ],
)
def test_a_test_is_as_near_as_its_imports(file: str, near: str, far: str) -> None:
    reached = quick.distances([file])
    assert reached[near] <= 1
    assert far not in reached or reached[far] > reached[near]


def test_a_rule_is_known_by_its_class_its_specimens_and_its_example() -> None:
    assert quick.codes(["conformance/lpkit_conformance/checks/examples/LP201.sdk.diff"]) == {"LP201"}
    assert quick.codes(["tests/conformance/zoo/lp305.py", "sdk/lpkit/rng.py"]) == {"LP305"}
    assert quick.codes(["tests/conformance/zoo/lp201/v1.py"]) == {"LP201"}
    assert "LP207" in quick.codes(["conformance/lpkit_conformance/checks/lp2_sizes.py"])


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("class LP208(", {"LP208"}),
        ("import annotations", {"LP207", "LP208", "LP214"}),
        ("", {"LP207", "LP208", "LP214"}),
    ],
)
def test_rules_whose_class_did_not_change_are_left_out(place: str, found: set[str], monkeypatch) -> None:
    file = "conformance/lpkit_conformance/checks/lp2_sizes.py"
    lines = (ROOT / file).read_text("utf-8").splitlines()
    changed = {number for number, line in enumerate(lines, 1) if place and place in line}
    monkeypatch.setattr(quick, "changed_lines", lambda file: changed)
    assert quick.codes([file]) == found


def run(*arguments: str) -> str:
    folders = [ROOT / "conformance" / "tools", ROOT / "tests" / "conformance"]
    done = subprocess.run(
        [sys.executable, "-m", "quick", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


@pytest.mark.broad
def test_it_stops_in_time_and_says_what_it_left_out() -> None:
    printed = run("--seconds", "0", "tests/conformance/zoo/lp309.py")
    assert "1 passed" in printed
    assert "tests/conformance/test_zoo.py" in printed.partition("Left out: ")[2]


@pytest.mark.broad
def test_it_runs_a_state_machine_whose_location_is_hypothesis() -> None:
    printed = run("--seconds", "9", "tests/sdk/columns/test_ragged.py")
    assert " passed" in printed
    assert "INTERNALERROR" not in printed
