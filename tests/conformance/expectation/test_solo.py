"""The oracle: what a request should get, and when two rows count as different."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit_conformance.expectation.compare import RELATIVE_TOLERANCE, compare, first_difference
from lpkit_conformance.expectation.solo import fresh_batch, solo_runs
from lpkit_conformance.hosts import default_host
from lpkit_conformance.hosts.v1 import V1Host
from lpkit_conformance.programs.generate import Arrive, Finish, Step
from lpkit_conformance.subject.subject import Subject
from zoo.correct.portable import PortableRepetition
from zoo.correct.v2 import TwoFaced, V2Presence
from zoo.lp202 import StaleOnDecline
from zoo.lp504 import Latch
from zoo.registry import Case

BEFORE = torch.linspace(-4.0, 6.0, 512).repeat(2, 1)


def subject(cls: Any, host: str, case: dict[str, Any] | None = None) -> Subject:
    return Subject.of("x", cls, host, Case.parse(case or cls.CASE))


def changed(value: float, rows: torch.Tensor = BEFORE) -> torch.Tensor:
    """The same rows with another logit of row 0, token 3."""
    return rows.index_put((torch.tensor(0), torch.tensor(3)), torch.tensor(value))


EDITED = BEFORE * 2
MASKED = changed(-math.inf)


@pytest.mark.parametrize(
    ("expected", "got", "found"),
    [
        (BEFORE + 1, BEFORE + 1, None),
        # Rounding is forgiven in a row that the plugin edits; a row that it should leave alone comes back as it was.
        (EDITED, EDITED + RELATIVE_TOLERANCE * 3, None),
        (EDITED, EDITED + RELATIVE_TOLERANCE * 60, (0, None, "wrong")),
        (BEFORE, changed(float(BEFORE[0, 3].nextafter(torch.tensor(99.0)))), (0, 3, "stale")),
        (changed(9.0), BEFORE, (0, 3, "lost")),
        (changed(9.0), BEFORE + 5.0, (0, None, "wrong")),
        # A mask and a number differ, NaN equals NaN and nothing else.
        (MASKED, changed(-1e9), (0, 3, "wrong")),
        (MASKED, MASKED.clone(), None),
        (changed(math.nan, EDITED), changed(math.nan, EDITED), None),
        (changed(math.nan, EDITED), EDITED, (0, 3, "wrong")),
    ],
)
def test_the_first_row_that_differs_beyond_rounding_is_reported_with_its_kind(
    expected: torch.Tensor, got: torch.Tensor, found: tuple[int, int | None, str] | None
) -> None:
    difference = first_difference(BEFORE, expected, got)
    if found is None or difference is None:
        assert difference is found
        return
    row, token, kind = found
    assert (difference[0], difference[4]) == (row, kind)
    assert token in (None, difference[1])


@pytest.mark.parametrize(
    ("cls", "host", "case"),
    [
        (TwoFaced, "v1", None),
        (TwoFaced, "v2", None),
        (PortableRepetition, "v1", {"extra_args": {"rep_penalty": 1.7}}),
        (V2Presence, "v2", None),
    ],
)
def test_the_solo_runs_of_a_correct_processor_are_what_the_batch_gives(cls: Any, host: str, case: Any) -> None:
    under_test = subject(cls, host, case)
    runner = default_host(under_test, 8)
    seen = list(runner.run([Arrive("a", 0), Arrive("b", None), Arrive("c", 1), Step(3), Finish("a"), Step(3)]))
    solo = solo_runs(under_test)
    assert solo.prepare(runner.pool.requests)
    assert [compare(item, solo) for item in seen] == [None] * len(seen)


def test_solo_runs_do_not_touch_the_running_requests() -> None:
    under_test = subject(TwoFaced, "v1")
    runner = default_host(under_test, 8)
    for _ in runner.run([Arrive("a", 0), Step(4)]):
        pass
    outputs = list(runner.pool.requests["a"].request.output_token_ids)
    solo_runs(under_test).prepare(runner.pool.requests)
    assert runner.pool.requests["a"].request.output_token_ids == outputs


def test_solo_runs_that_never_act_say_so() -> None:
    under_test = subject(TwoFaced, "v1", {"extra_args": {"unrelated": 1}})
    runner = default_host(under_test, 8)
    for _ in runner.run([Arrive("a", 0), Step(2)]):
        pass
    assert solo_runs(under_test).prepare(runner.pool.requests) is False


def test_a_solo_run_catches_state_of_another_request() -> None:
    under_test = subject(StaleOnDecline, "v1")
    runner = default_host(under_test, 8)
    seen = list(runner.run([Arrive("a", 0), Step(), Finish("a"), Arrive("b", None), Step()]))
    solo = solo_runs(under_test)
    solo.prepare(runner.pool.requests)
    mismatch = compare(seen[-1], solo)
    assert mismatch is not None
    assert (mismatch.request, mismatch.kind) == ("b", "stale")


def test_a_fresh_batch_catches_state_that_tokens_do_not_give() -> None:
    """The latch follows its request everywhere, so its solo run, which latches too, agrees with the batch."""
    under_test = subject(Latch, "v1")
    runner = default_host(under_test, 8)
    assert isinstance(runner, V1Host)
    differs = agrees = False
    solo = solo_runs(under_test)
    for seen in runner.run([Arrive("a", 0), Arrive("b", None), Step(4)]):
        solo.prepare(runner.pool.requests)
        agrees |= compare(seen, solo) is None
        actives = [runner.pool.requests[row.request] for row in seen.rows]
        differs |= first_difference(seen.before, fresh_batch(under_test, actives, seen), seen.after) is not None
    assert agrees
    assert differs
