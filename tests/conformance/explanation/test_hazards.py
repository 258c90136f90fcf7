"""The operations left in a shrunk program, and the type of an exception, decide the advice."""

from __future__ import annotations

import pytest
from lpkit_conformance.explanation.advice import fix
from lpkit_conformance.explanation.exceptions import read
from lpkit_conformance.explanation.hazards import Hazard, fix_for, hazards
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap

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


@pytest.mark.parametrize(
    ("held", "meant", "reader", "key"),
    [
        ({"company", "remove", "swap"}, "remove", "v1", "remove"),  # meant, and still held
        ({"company", "remove", "swap"}, "resume", "v1", "swap"),  # the most special
        ({"company", "remove"}, "company", "v1", "remove"),  # company alone does not show it
        ({"alone"}, "resume", "v1", "alone"),
        ({"company"}, None, "v2", "company"),
        ({"company", "swap"}, None, "raised", "swap"),
        ({"alone", "long"}, "long", "raised", "long"),
        ({"company", "swap", "resume", "replace"}, None, "v1", ""),  # any of them may be at fault
    ],
)
def test_a_finding_gets_the_fix_of_one_hazard(held: set[Hazard], meant: Hazard | None, reader: str, key: str) -> None:
    assert fix_for(held, meant, [reader]) == (fix(key, reader) if key else "")


@pytest.mark.parametrize(
    ("kind", "text", "cause", "fix"),
    [
        ("AttributeError", "'Mine' object has no attribute 'ros'", "misspelt", "correct the name"),
        ("AttributeError", "'str' object has no attribute 'items'", "another type", ""),
        ("AttributeError", "'NoneType' object has no attribute 'get'", "None", ""),
        ("TypeError", "'NoneType' object is not iterable", "None", ""),
        ("NameError", "name 'trch' is not defined", "not defined", "import"),
        ("KeyError", "3", "not there", ""),
        ("MyOwnError", "hm", "", ""),
    ],
)
def test_an_exception_is_explained_as_far_as_its_type_allows(kind: str, text: str, cause: str, fix: str) -> None:
    explanation = read(kind, f"raised {kind}: {text}")
    for expected, actual in ((cause, explanation.cause), (fix, explanation.fix), ("", explanation.line)):
        assert expected in actual and bool(expected) == bool(actual)
