"""The verdict of every check on every planted defect and every correct processor of the zoo, host by host.

The zoo's own tests hold that the named check catches its defect; this holds all the other verdicts, too.
"""

from __future__ import annotations

import pytest
import zoo
from zoo import verdicts

LINES = verdicts.held()


@pytest.mark.deep
@pytest.mark.parametrize("style", ["adapter", "packaging", "portable", "v1", "v2"])
def test_every_verdict_is_the_same(style: str) -> None:
    lines = {identity: line for identity, line in LINES.items() if identity.startswith((f"{style}-", f"{style}+"))}
    now = verdicts.judged(lines)
    changed = [
        f"-{identity}: {lines[identity]}\n+{identity}: {now[identity]}"
        for identity in lines
        if now[identity] != lines[identity]
    ]
    assert not changed, "\n".join(changed)


def test_each_line_is_that_of_a_specimen_and_they_are_sorted() -> None:
    # A specimen without a line gets one at the next `make matrix`: until then its named check is all that is held.
    assert LINES.keys() <= {item.id for item in zoo.specimens()}
    assert list(LINES) == sorted(LINES)
    assert len(LINES) > 400


def test_the_line_of_a_defect_names_the_check_that_must_catch_it() -> None:
    for defect in zoo.DEFECTS:
        found = verdicts.parts(LINES.get(defect.id, f"failed {defect.code}"))
        labels = [label.partition("[")[0] for status in ("failed", "advice") for label in found.get(status, ())]
        assert {defect.code, *defect.also} & {*labels}, defect.id


def test_an_example_fails_no_check_but_its_own_and_those_that_it_names() -> None:
    of_the_style = {"LP004", "LP701"}  # advice to a raw V1 class with a loop over rows: examples are short, not fast
    for defect in zoo.DEFECTS:
        found = verdicts.parts(LINES.get(defect.id, "")) if defect.name.startswith("Example") else {}
        labels = [label for status in ("failed", "advice", "error") for label in found.get(status, ())]
        assert {label.partition("[")[0] for label in labels} - of_the_style <= {defect.code, *defect.also}, defect.id
