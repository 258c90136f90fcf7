"""Plugins in engines with drafts: the configuration of their constructor, and plugins that refuse."""

from __future__ import annotations

from typing import Any

import pytest
from lpkit_conformance.checks.catalogue import by_code
from lpkit_conformance.expectation.speculation import speculating
from lpkit_conformance.results import Failed, Skipped
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from zoo.bases import Boost
from zoo.correct.v2_odd import ExactWithoutDrafts, NoDrafts
from zoo.lp221 import DraftsByKey
from zoo.lp804 import ExactInCallsWithoutDrafts


def subject(cls: Any, **options: Any) -> Subject:
    return Subject.of("x", cls, "v2", Case.parse(getattr(cls, "CASE", Boost.CASE)), **options)


def test_the_constructor_gets_drafts_and_may_refuse_them() -> None:
    there = speculating(subject(Boost))
    assert there is not None
    config = there.setup.config()
    assert config.speculative_config.num_speculative_tokens == 5 and config.scheduler_config.async_scheduling
    assert subject(Boost).setup.config().speculative_config is None
    for cls in (NoDrafts, DraftsByKey):  # the latter is LP221's to report
        assert speculating(subject(cls)) is None


@pytest.mark.parametrize("code", ["LP804", "LP809"])
def test_checks_of_drafts_skip_a_class_that_refuses_them(code: str) -> None:
    with pytest.raises(Skipped, match="refuses drafts"):
        by_code()[code]().run(subject(NoDrafts))


def test_a_class_that_refuses_drafts_is_mixed_without_them_and_recorded_ones_are_left_out() -> None:
    by_code()["LP808"]().run(subject(NoDrafts))
    with pytest.raises(Skipped, match="refuses drafts"):
        by_code()["LP220"]().run(subject(NoDrafts, trace=("v2_drafts", "mixed")))


def test_bounds_may_be_trusted_where_the_engine_has_no_drafts_and_nowhere_else() -> None:
    by_code()["LP804"]().run(subject(ExactWithoutDrafts))
    with pytest.raises(Failed, match="different logits"):
        by_code()["LP804"]().run(subject(ExactInCallsWithoutDrafts))
