"""The runner that a vLLM would use, by release, environment and Triton."""

from __future__ import annotations

import pytest
from lpkit_conformance.discovery.runner_choice import SWITCH, choose
from lpkit_conformance.vllm_api.releases import parse_release


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.32.0", (0, 32, 0)),
        ("0.31.0+cu129", (0, 31, 0)),
        ("0.10.1.1", (0, 10, 1)),
        ("0.30.1rc1", (0, 30, 1)),
        ("0.33.1.dev12+gabc", (0, 33, 1)),
        ("1.0", (1, 0, 0)),
        ("0.1.dev1+gabc", None),
        ("0.0.0", None),
        ("?", None),
    ],
)
def test_a_version_tells_its_release_unless_it_is_a_checkout_without_tags(version: str, release: object) -> None:
    assert parse_release(version) == release


@pytest.mark.parametrize(
    ("version", "runner", "loads"),
    [
        ("0.9.2", "v1", False),
        ("0.10.1", "v1", True),
        ("0.21.0", "v1", True),
        ("0.22.0", "v1", True),
        ("0.30.0", "v1", True),
        ("0.31.0", "v2", True),
        ("0.33.0", "v2", True),
    ],
)
def test_by_default_a_processor_runs_on_v1_until_v2_can(version: str, runner: str, loads: bool) -> None:
    choice = choose(parse_release(version), "", {})
    assert (choice.runner, choice.loads, choice.refusal) == (runner, loads, "")


def test_an_unknown_release_counts_as_the_newest() -> None:
    assert choose(None, "", {}).runner == "v2"


def test_without_triton_the_default_is_v1_and_says_why() -> None:
    choice = choose((0, 32, 0), "Triton is not installed", {})
    assert (choice.runner, choice.reason, choice.refusal) == ("v1", "Triton is not installed", "")


@pytest.mark.parametrize("version", ["0.12.0", "0.21.0", "0.25.0", "0.32.0"])
def test_the_switch_set_to_0_is_v1(version: str) -> None:
    choice = choose(parse_release(version), "", {SWITCH: "0"})
    assert (choice.runner, choice.loads, choice.refusal) == ("v1", True, "")


@pytest.mark.parametrize(
    ("version", "loads", "refuses"),
    [("0.12.0", False, False), ("0.21.0", False, False), ("0.22.0", False, True), ("0.30.0", False, True),
     ("0.31.0", True, False)],
)  # fmt: skip
def test_the_switch_set_to_1_means_something_else_in_each_age(version: str, loads: bool, refuses: bool) -> None:
    choice = choose(parse_release(version), "", {SWITCH: "1"})
    assert (choice.runner, choice.loads, bool(choice.refusal)) == ("v2", loads, refuses)


def test_before_the_switch_exists_it_means_nothing() -> None:
    assert choose((0, 11, 2), "", {SWITCH: "1"}) == choose((0, 11, 2), "", {})


@pytest.mark.parametrize("value", ["true", "", "yes"])
def test_a_switch_that_is_no_number_ends_vllm(value: str) -> None:
    assert "ValueError" in choose((0, 32, 0), "", {SWITCH: value}).refusal


def test_any_number_but_0_switches_v2_on() -> None:
    assert choose((0, 32, 0), "", {SWITCH: " 2 "}).runner == "v2"


def test_the_switch_does_not_replace_triton() -> None:
    assert "Triton" in choose((0, 32, 0), "Triton is not installed", {SWITCH: "1"}).refusal
