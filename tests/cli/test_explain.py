"""``lpkit explain``: what a check is about."""

from __future__ import annotations

from lpkit_cli.app import app
from lpkit_conformance.checks.catalogue import all_checks
from typer.testing import CliRunner

CHECKS = all_checks(None)


def explain(*arguments: str):
    return CliRunner().invoke(app, ["explain", *arguments])


def test_without_a_code_every_check_is_listed_below_its_family() -> None:
    done = explain()
    assert done.exit_code == 0
    first = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert [word for word in first if len(word) == 5] == [check.code for check in CHECKS]
    assert all(first.index(check.code[:3]) < first.index(check.code) for check in CHECKS)


def test_a_check_is_explained_by_its_rule_the_reason_and_the_fix() -> None:
    check = CHECKS[-1]
    done = explain(check.code.lower())
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{check.code} {check.name} ({check.tier}")
    for label in ("rule", "why", "fix"):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{label:5} ")]
        assert len(line) > 20, f"{check.code} has no {label}"


def test_a_check_is_found_by_its_name() -> None:
    assert explain(CHECKS[-1].name.upper()).stdout == explain(CHECKS[-1].code).stdout


def test_a_family_is_explained_check_by_check() -> None:
    done = explain("LP0")
    heads = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("LP0")]
    assert heads == [check.code for check in CHECKS if check.code.startswith("LP0")]


def test_an_unknown_code_is_answered_with_the_nearest() -> None:
    done = explain("LP2O1")
    assert done.exit_code == 2
    assert "there is no check LP2O1; did you mean 'LP2" in done.stderr
