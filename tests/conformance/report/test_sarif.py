"""SARIF: the structure that code scanning reads, with any message of a plugin."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.documentation import check_page
from lpkit_conformance.report import formats
from lpkit_conformance.results import CheckResult, Finding, Report, TargetResult

NASTY = "two\nlines \x00\x1b[31m <&> 100% \ud800"
HERE = str(Path.cwd() / "src" / "my plugin.py")
FINDING = Finding(NASTY, cause="a cause", fix="a fix", location=f"{HERE}:12", saved="x.json")
CHECKS = (
    CheckResult("LP001", "is-a-processor", "", "passed"),
    CheckResult("LP004", "default-engine-starts", "", "advice", "advised", Finding("advised")),
    CheckResult("LP202", "replace-on-add", "v1", "failed", NASTY, FINDING),
    CheckResult("LP202", "replace-on-add", "v2", "failed", NASTY, FINDING),
    CheckResult("LP203", "remove", "v1", "expected", "known: it fails", FINDING),
    CheckResult("LP205", "swap", "v1", "skipped", "never active"),
    CheckResult("LP208", "growth", "v1", "error", "lost"),
)


def sarif(*targets: TargetResult) -> dict[str, Any]:
    file = io.StringIO()
    formats.write("sarif", Report(targets), file)
    file.getvalue().encode("utf-8")
    return json.loads(file.getvalue())


@pytest.fixture
def run() -> dict[str, Any]:
    found = sarif(TargetResult("mine", ("v1",), CHECKS, "v1"))
    assert (found["version"], len(found["runs"])) == ("2.1.0", 1)
    assert found["$schema"].endswith("sarif-schema-2.1.0.json")
    return found["runs"][0]


def test_every_finding_is_a_result_with_its_level(run) -> None:
    levels = [(result["ruleId"], result["level"]) for result in run["results"]]
    assert levels == [("LP004", "note"), ("LP202", "error"), ("LP202", "error"), ("LP203", "error"), ("LP208", "error")]


def test_every_result_has_its_rule_and_every_rule_its_documentation(run) -> None:
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["LP004", "LP202", "LP203", "LP208"]
    for rule in rules:
        assert rule["helpUri"] == check_page(rule["id"])
        assert rule["shortDescription"]["text"] and rule["help"]["text"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])


def test_a_result_points_at_the_line_of_a_file_of_the_project(run) -> None:
    place = run["results"][1]["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "src/my%20plugin.py", "uriBaseId": "ROOT"},
        "region": {"startLine": 12},
    }
    assert run["originalUriBaseIds"]["ROOT"]["uri"] == f"{Path.cwd().as_uri()}/"


def test_a_result_without_a_line_still_has_a_file(run) -> None:
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "pyproject.toml"


def test_a_file_elsewhere_is_named_in_full() -> None:
    finding = Finding("x", location="/elsewhere/plugin.py:3")
    (run,) = sarif(TargetResult("mine", ("v1",), (CheckResult("LP202", "x", "v1", "failed", "x", finding),)))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "file:///elsewhere/plugin.py"}


def test_results_are_told_apart_and_known_again(run) -> None:
    prints = [result["partialFingerprints"]["lpkit/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
    again = sarif(TargetResult("mine", ("v1",), CHECKS, "v1"))["runs"][0]["results"]
    assert prints == [result["partialFingerprints"]["lpkit/v1"] for result in again]


def test_an_announced_failure_is_suppressed(run) -> None:
    suppressed = [result["ruleId"] for result in run["results"] if "suppressions" in result]
    assert suppressed == ["LP203"]


def test_a_target_that_could_not_be_judged_is_no_success() -> None:
    (run,) = sarif(TargetResult("theirs", (), (), error="it is gone"))["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "it is gone" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    assert sarif(TargetResult("mine", (), CHECKS[:1]))["runs"][0]["invocations"][0]["executionSuccessful"] is True
