"""Goals of a step's host cost, and the page that shows the steps."""

from __future__ import annotations

from pathlib import Path

from host_cost.page import CHANGING, MORE_LAUNCHES, OWN, Key, goals, write
from known_launches import LAUNCHES

FOUND = {
    Key("min-p", "v1", 8, False): {"warm": 3.0, "cold": 9.0, "instructions": 41.0},
    Key("min-p", "v1", 8, True): {"warm": 5.0, "cold": 8.0, "instructions": 57.0},
    Key("dry", "v2", 8, False): {"hot": 8.5, "warm": 18.5, "cold": 30.0},
}


def test_a_goal_fails_where_any_quantity_is_more_than_that_of_vllms_own_or_than_a_plugin_may_take() -> None:
    assert [(goal.holds, goal.name == OWN) for goal in goals(FOUND)] == [(False, True), (True, False), (False, False)]
    slower = {**FOUND[Key("min-p", "v1", 8, True)], "cold": 9.0}
    assert next(goals({**FOUND, Key("min-p", "v1", 8, True): slower})).holds


def test_launches_and_operations_are_goals() -> None:
    found = {Key("xtc", "v2", 8, False): {"launches": 3.0, "operations": 0.0, "budget": 2.0}}
    assert [(goal.text, goal.holds) for goal in goals(found)] == [
        ("xtc on V2, 8 requests: 0", True),
        ("xtc on V2, 8 requests: 3", False),
    ]


def test_a_launch_more_is_missed_unless_its_reason_is_known() -> None:
    found = {Key(name, "v2", 8, False): {"launches": 3.0, "operations": 0.0, "budget": 2.0} for name in ("xtc", "dry")}
    more = {Key("xtc", "v2", 8, False): {"launches": 4.0, "operations": 0.0, "budget": 2.0}}
    assert [goal.text for goal in goals(found) if goal.missed] == ["dry on V2, 8 requests: 3"]
    assert [goal.text for goal in goals(more) if goal.missed] == ["xtc on V2, 8 requests: 4"]
    on_v2 = {name.removeprefix("lpkit-"): counts[0][1] for name, counts in LAUNCHES.items()}
    assert {name: n for name, n in on_v2.items() if n > 2} == {name: n for name, (n, _) in MORE_LAUNCHES.items()}


def test_a_changing_step_and_an_operation_without_its_launch_are_compared_but_never_missed() -> None:
    found = {
        **{Key(name, "v1", 8, False): {"hot": 2.0, "changing": 9.0} for name in ("min-p", "allowed-tokens")},
        **{Key(name, "v1", 8, True): {"hot": 1.0, "changing": 3.0} for name in ("min-p", "allowed-tokens")},
    }
    kinds = [(goal.name, goal.holds, goal.missed, bool(goal.exempt)) for goal in goals(found)]
    assert kinds == [
        (OWN, False, True, False),
        (CHANGING, False, False, True),
        (OWN, False, False, True),
        (CHANGING, False, False, True),
    ]


def test_the_processor_of_the_readme_is_compared_with_vllms_own() -> None:
    ours, theirs = Key("README: MinP", "v2", 8, False), Key("min-p", "v2", 8, True)
    assert [goal.holds for goal in goals({ours: {"hot": 9.0}, theirs: {"hot": 8.0}})] == [False]


def test_only_the_measured_section_of_a_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n## Measured\n\nstale\n\n## Behind\n\nkept\n", encoding="utf-8")
    write(page, FOUND)
    once = page.read_text("utf-8")
    write(page, FOUND)
    assert page.read_text("utf-8") == once
    assert once.startswith("# Title\n\n## Measured\n\nMicro") and once.endswith("|\n\n## Behind\n\nkept\n")
    assert "| dry, thinking-budget, xtc: at most 8 µs hot | 0 of 1 |  | dry on V2, 8 requests: 8.5 |" in once
    assert "| dry | none, 8.5 | none, 18.5 | none, 30.0 |  |" in once and "stale" not in once
