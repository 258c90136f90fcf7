"""LP1: what a plugin raises when it is asked about parameters."""

from __future__ import annotations

from typing import Any

import pytest
from lpkit_conformance.testing import compute_check
from zoo.correct.v1 import Bias

CASE = {"extra_args": {"bias": 2.5}}


def raising(error: BaseException) -> type:
    """A processor whose ``validate_params`` raises."""

    class Raises(Bias):
        @classmethod
        def validate_params(cls, params: Any) -> None:
            raise error

    return Raises


@pytest.mark.parametrize("code", ["LP102", "LP103", "LP106"])
def test_ctrl_c_is_no_finding(code: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        compute_check(code, raising(KeyboardInterrupt()), case=CASE)


@pytest.mark.parametrize("error", [SystemExit(3), KeyError("odd"), GeneratorExit()], ids=repr)
@pytest.mark.parametrize("code", ["LP102", "LP103", "LP106"])
def test_any_other_exception_is(code: str, error: BaseException) -> None:
    result = compute_check(code, raising(error), case=CASE)
    assert result.status == "failed"
    assert result.finding is not None
    assert type(error).__name__ in result.finding.got
    assert result.finding.location.startswith(__file__)


@pytest.mark.parametrize("error", [TypeError("odd"), OverflowError("odd")], ids=repr)
def test_an_exception_that_the_server_answers_with_400_is_advice(error: Exception) -> None:
    assert compute_check("LP103", raising(error), case=CASE).status == "advice"


def test_an_exception_that_the_server_does_not_answer_so_comes_before_advice() -> None:
    class Raises(Bias):
        @classmethod
        def validate_params(cls, params: Any) -> None:
            bias = (params.extra_args or {}).get("bias", 0.0)
            if bias * 2 > 0 and isinstance(bias, bool):
                raise KeyError("odd")

    result = compute_check("LP103", Raises, case=CASE)
    assert result.status == "failed"
    assert result.finding is not None and "KeyError" in result.finding.got


@pytest.mark.parametrize("code", ["LP102", "LP103", "LP106"])
def test_an_accepting_processor_passes(code: str) -> None:
    assert compute_check(code, Bias, case=CASE).status == "passed"


def test_what_validation_refuses_is_not_tried_on_the_engine() -> None:
    refuses = raising(ValueError("no"))
    for code, message in {
        "LP104": "validate_params accepted none of the odd values",
        "LP105": "validate_params refuses the case",
    }.items():
        result = compute_check(code, refuses, case=CASE)
        assert (result.status, result.message) == ("skipped", message)


class Limited(Bias):
    """Sets a limit in its constructor, and refuses everything until then."""

    limit = 0

    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        super().__init__(vllm_config, *rest)
        type(self).limit = vllm_config.model_config.get_vocab_size()

    @classmethod
    def validate_params(cls, params: Any) -> None:
        if (cls.read(params) or (0, 0.0))[1] > cls.limit:
            raise ValueError("bias is too large")


class LimitedForAll(Limited):
    limit = None  # type: ignore[assignment]


@pytest.mark.parametrize(("code", "cls"), [("LP102", LimitedForAll), ("LP106", Limited)])
def test_validation_that_works_once_an_instance_was_made_is_told_so(code: str, cls: Any) -> None:
    result = compute_check(code, cls, case=cls.CASE)
    assert result.finding is not None, result.message
    assert "makes no instance" in result.finding.cause
