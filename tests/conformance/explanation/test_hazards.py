"""The operations left in a shrunk program decide the fix of a finding."""

from __future__ import annotations

from typing import Any

import pytest
import zoo
from lpkit_conformance.explanation.exceptions import read
from lpkit_conformance.explanation.hazards import FIXES, ORDER_FIX, WHEN, Hazard, fix_for, hazards, with_swaps_apart
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap
from lpkit_conformance.programs.shrink import simplify
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.testing import compute_check

A, B, C = Arrive("a", 0), Arrive("b", 1), Arrive("c", 2)


@pytest.mark.parametrize(
    ("host", "ops", "expected"),
    [
        ("v1", [A, Step(3)], {"alone"}),
        ("v1", [A, B, Step()], {"company"}),
        ("v1", [A, B, Step(), Finish("b"), Step()], {"company", "remove"}),
        ("v1", [A, B, Step(), Finish("a"), Step()], {"company", "move"}),
        ("v1", [A, B, C, Step(), Finish("a"), Finish("c"), Step()], {"company", "move", "remove"}),
        ("v1", [A, B, Step(), Finish("a"), C, Step()], {"company", "replace"}),
        ("v1", [A, B, Step(), Finish("b"), Step(), C, Step()], {"company", "remove"}),
        ("v2", [A, B, Step(), Finish("b"), Step(), C, Step()], {"company", "remove", "move", "replace"}),
        ("v1", [A, Step(), Preempt("a"), Step(), Resume("a"), Step()], {"alone", "remove", "empty", "resume"}),
        ("v1", [A, B, Step(), Swap(0, 1), Step()], {"company", "swap"}),
        ("v1", [A, Finish("a"), Step()], {"alone", "empty"}),
        ("v1", [A, Idle(), Step()], {"alone", "idle"}),
        ("v1", [Arrive("a", 0, chunks=2), Step(3)], {"alone", "prefill"}),
        ("v1", [A, Arrive("b", twin_of="a"), Step()], {"company", "twins"}),
        ("v1", [A, Step(41)], {"alone", "long"}),
        ("v1", [Arrive("a", 0, 1), Step()], {"alone", "short"}),
        ("v1", [Arrive("a", 0, 100), Step()], {"alone", "long"}),
        ("v2", [A, Speculate(2, 1)], {"alone", "drafts"}),
        ("v1", [*(Arrive(f"r{i}", i) for i in range(9)), Step()], {"company", "many"}),
        ("v1", [*(Arrive(f"r{i}", i) for i in range(16)), Step()], {"company", "many", "full"}),
    ],
)
def test_the_hazards_of_a_program_are_what_happens_in_it(host: str, ops: list[Op], expected: set[str]) -> None:
    assert hazards(ops, host, 16) == expected


def test_a_finding_gets_the_fix_of_what_its_program_was_made_for_only_while_that_is_left() -> None:
    left = [A, B, Step(), Finish("b"), Step(), Swap(0, 1), Step()]
    assert fix_for(left, "v1", 8, "remove", raised=False) == FIXES["remove"]["v1"]
    assert fix_for(left, "v1", 8, "resume", raised=False) == FIXES["swap"]["v1"]
    assert fix_for([A, Step(2)], "v1", 8, "resume", raised=False) == FIXES["alone"]["v1"]
    assert fix_for([A, B, Step(2)], "v2", 8, None, raised=False) == FIXES["company"]["v2"]


def test_where_several_changes_are_left_no_one_of_them_is_blamed() -> None:
    mixed = [A, B, Step(), Swap(0, 1), Preempt("a"), Step(), Resume("a"), Finish("b"), C, Step()]
    assert fix_for(mixed, "v1", 8, None, raised=False) == ""


def test_an_exception_is_mended_where_it_is_raised() -> None:
    assert fix_for([A, B, Step(), Swap(0, 1), Step()], "v1", 8, None, raised=True).startswith("make the line work when")
    assert "max_model_len" in fix_for([A, Step(41)], "v1", 8, "long", raised=True)


def test_swaps_are_put_into_updates_of_their_own() -> None:
    assert with_swaps_apart([A, B, Swap(0, 1), Step()]) == [A, B, Step(), Swap(0, 1), Step()]
    chained: list[Op] = [Swap(0, 1), Swap(1, 2), Step()]
    assert with_swaps_apart([A, B, C, *chained]) == [A, B, C, Step(), *chained]
    assert with_swaps_apart([A, B, C, Step(), *chained]) is None
    assert with_swaps_apart([A, B, Step(), Swap(0, 1), Step()]) is None
    assert with_swaps_apart([A, Step()]) is None


@pytest.mark.parametrize("name", ["AddsLast", "SwapsFirst"])
def test_where_a_swap_is_right_alone_the_order_of_an_update_is_at_fault(name: str) -> None:
    plugin = zoo.specimen(f"v1-{name}").target
    finding = compute_check("LP206", plugin, case=plugin.CASE).finding
    assert finding is not None
    assert finding.fix == ORDER_FIX


@pytest.mark.parametrize(
    ("name", "code"), [("SwapOneSided", "LP205"), ("AliasedSwap", "LP205"), ("MovesFromSnapshot", "LP206")]
)
def test_a_swap_that_goes_wrong_alone_is_told_as_one(name: str, code: str) -> None:
    plugin = zoo.specimen(f"v1-{name}").target
    finding = compute_check(code, plugin, case=plugin.CASE).finding
    assert finding is not None
    assert finding.fix == FIXES["swap"]["v1"]


def test_every_hazard_has_words_and_a_fix_on_the_hosts_that_know_it() -> None:
    assert FIXES.keys() == WHEN.keys() == set(Hazard.__args__)  # type: ignore[attr-defined]
    only = {"drafts": {"v2"}, "swap": {"v1"}}
    for name, fixes in FIXES.items():
        assert fixes.keys() == only.get(name, {row.interface for row in HOSTS.values()}), name


def test_a_program_loses_what_its_failure_does_not_need() -> None:
    ops: list[Op] = [Arrive("a", 0, 100, chunks=2, greedy=True), Speculate(2, 1), Preempt("a"), Resume("a", True)]

    def needs_chunks(found: Any) -> bool | None:
        return found[0].chunks == 2 or None

    assert simplify(ops, True, needs_chunks)[0] == [Arrive("a", 0, chunks=2), Step(), Preempt("a"), Resume("a")]


@pytest.mark.parametrize(
    ("kind", "text", "cause", "fix"),
    [
        (
            "AttributeError",
            "raised AttributeError: 'Mine' object has no attribute 'ros'",
            "misspelt",
            "correct the name",
        ),
        ("AttributeError", "raised AttributeError: 'str' object has no attribute 'items'", "another type", ""),
        ("AttributeError", "raised AttributeError: 'NoneType' object has no attribute 'get'", "None", ""),
        ("TypeError", "raised TypeError: 'NoneType' object is not iterable", "None", ""),
        ("NameError", "raised NameError: name 'trch' is not defined", "not defined", "import"),
        ("KeyError", "raised KeyError: 3", "not there", ""),
        ("MyOwnError", "raised MyOwnError: hm", "", ""),
    ],
)
def test_an_exception_is_explained_as_far_as_its_type_tells(kind: str, text: str, cause: str, fix: str) -> None:
    reading = read(kind, text, "Mine")
    assert cause in reading.cause and bool(cause) == bool(reading.cause)
    assert fix in reading.fix and bool(fix) == bool(reading.fix)
