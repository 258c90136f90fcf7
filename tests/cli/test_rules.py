"""``lpkit rules``: operators' files, the schema of documents, and what a document does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lpkit.rules.document import RULES
from lpkit.rules.when import KEYS
from lpkit_cli.app import app
from typer.testing import CliRunner, Result

DOCUMENT = '[{"rule": "min_p", "threshold": 0.1, "when": {"from": 3, "until": 9, "every": 2, "before": "</think>"}}]'


def rules(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["rules", *arguments])


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "rules.toml"
    file.write_text('allow = ["min_p"]\n[documents]\nsafe = [{ rule = "ban", phrases = [7] }]\n', encoding="utf-8")
    return file


def test_a_right_file_is_summed_up(policy: Path) -> None:
    done = rules("check", str(policy))
    assert done.exit_code == 0
    assert f"1 of {len(RULES)} rules allowed, 0 sets, 1 documents, 0 steps for every request" in done.stdout


def test_a_wrong_file_is_exit_code_2_with_the_nearest_name(policy: Path) -> None:
    policy.write_text('allow = ["min_q"]', encoding="utf-8")
    done = rules("check", str(policy))
    assert done.exit_code == 2
    assert f"lpkit rules check: {policy}: allow: 'min_q' is no rule; did you mean 'min_p'?" in done.output


def test_the_schema_has_every_rule_with_its_parameters() -> None:
    schema = json.loads(rules("schema").stdout)
    steps = {step["title"]: step for step in schema["oneOf"][0]["items"]["oneOf"]}
    assert steps.keys() == RULES.keys()
    for name, rule in RULES.items():
        assert steps[name]["properties"].keys() == {"rule", *rule.keys, "when"}
        assert steps[name]["properties"]["rule"] == {"const": name}
    assert set(schema["$defs"]["when"]["properties"]) == set(KEYS)


def test_a_step_is_explained_with_its_numbers_and_its_time(tmp_path: Path) -> None:
    said = rules("explain", DOCUMENT).stdout
    assert said == (
        "0. min_p: Mask tokens less likely than threshold times the likeliest one. Here: threshold 0.1. At positions "
        "counted from the start of the reply: from 3 to 8, every 2, until [</think>] is written. Not for greedy "
        "requests.\n"
    )
    file = tmp_path / "document.json"
    file.write_text(DOCUMENT, encoding="utf-8")
    assert rules("explain", str(file)).stdout == said


def test_nothing_is_said_of_what_is_not_given() -> None:
    empty = '[{"rule": "ban", "phrases": [5], "when": {"until": null, "after": []}}]'
    assert "At positions" not in rules("explain", empty).stdout
    assert rules("explain", "[]").stdout == "no steps: the request is unaffected\n"


def test_an_operators_document_is_explained_by_its_name(policy: Path) -> None:
    assert rules("explain", "safe", "--policy", str(policy)).stdout.startswith("0. ban: ")
    assert rules("explain", "safe").exit_code == 2
