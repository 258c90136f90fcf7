"""The target by which another process finds a class."""

from __future__ import annotations

from pathlib import Path

import pytest
from lpkit.loading import resolve_target
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


def test_a_file_that_only_sets_up_a_class_is_the_target_of_another_process(tmp_path: Path) -> None:
    file = tmp_path / "sets_up_bias.py"
    file.write_text("from zoo.correct.v1 import Bias\n", encoding="utf-8")
    target = f"{file}:Bias"
    assert resolve_target(target) is Bias
    assert origin(Subject.of(target, Bias, "v1", Case())) == target
