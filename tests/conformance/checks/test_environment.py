"""The target by which another process finds a class."""

from __future__ import annotations

import pytest
from lpkit_conformance.checks.lp6_environment import origin
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from zoo.correct.v1 import Bias


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("zoo.lp104:Bias", "zoo.lp104:Bias"),
        ("a name", "zoo.correct.v1:Bias"),
        ("zoo.lp104:AnyToken", "zoo.correct.v1:Bias"),
    ],
)
def test_a_class_is_loaded_by_the_given_target_if_that_finds_it(target: str, expected: str) -> None:
    assert origin(Subject.of(target, Bias, "v1", Case())) == expected
