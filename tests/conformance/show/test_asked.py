"""A request that cannot be shown is refused with its reason; one that can takes its case from the projects."""

from __future__ import annotations

from typing import Any

import lpkit
import pytest
from lpkit_conformance.errors import UserError
from lpkit_conformance.show.asked import asked as read
from lpkit_conformance.show.playing import ShownRequest


class Bias(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        bias: float = lpkit.Field(le=9.0)

    def process(self, logits: Any, rows: lpkit.Rows) -> Any:
        return logits


class Gain(Bias):
    class Params(lpkit.Params):
        gain: float


BIAS, GAIN = (f"{__file__}:{name}" for name in ("Bias", "Gain"))


def asked(*targets: tuple[str, Any], **options: Any) -> ShownRequest:
    defaults = {"rules": "", "case": "", "prompt": "", "host": "", "steps": 8, "seed": 3, "model": "", "like": ""}
    named = [{"name": spec.rpartition(":")[2], "spec": spec, "case": case} for spec, case in targets]
    return read({**defaults, "change": None, **options, "targets": named}, standin=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"case": '{"extra_args": {"bias": 99}}'}, "Bias refuses the request"),
        ({"model": "./nowhere"}, "there is no such folder"),
        ({"rules": "[{}]"}, "rules/0/rule"),
    ],
)
def test_a_request_that_cannot_run_is_refused_with_its_reason(options: dict[str, str], said: str) -> None:
    with pytest.raises(UserError) as error:
        asked((BIAS, {}), **options)
    assert said in str(error.value)


def test_several_targets_share_a_request_with_the_arguments_of_each() -> None:
    found = asked((BIAS, {"extra_args": {"bias": 2}, "temperature": 0.5}), (GAIN, {"extra_args": {"gain": 3}}))
    assert found.case.fields["extra_args"] == {"bias": 2, "gain": 3}
    assert (found.case.fields["temperature"], found.case.fields["max_tokens"], found.case.fields["seed"]) == (0.5, 8, 3)
    assert found.host == "v2" and [processor.name for processor in found.processors] == ["Bias", "Gain"]


def test_a_processor_that_is_compared_gets_the_other_request_and_keeps_its_own_arguments() -> None:
    first = asked((BIAS, {"extra_args": {"bias": 2}, "temperature": 0.5, "prompt_token_ids": [5, 6]}))
    for own in ({"extra_args": {"gain": 3}, "temperature": 0.9}, {}):
        found = asked((GAIN, own), like=first.case.text)
        assert found.case.fields["extra_args"].keys() == {"bias", "gain"} and found.case.fields["temperature"] == 0.5
        assert found.prompt == first.prompt == [5, 6]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (("bias", 7), lambda asked: asked.case.fields["extra_args"]["bias"] == 7),
        (("temperature", 0.25), lambda asked: asked.case.fields["temperature"] == 0.25),
        (
            ("1.threshold", 0.5),
            lambda asked: '{"rule": "min_p", "threshold": 0.5}' in asked.case.fields["extra_args"]["rules"],
        ),
    ],
)
def test_one_value_changes_and_everything_else_stays(change: tuple[str, Any], found: Any) -> None:
    rules = '[{"rule": "ban", "phrases": [5]}, {"rule": "min_p", "threshold": 0.1}]'
    given = {"extra_args": {"bias": 2}, "temperature": 0.5}
    before, after = asked((BIAS, given), rules=rules), asked((BIAS, given), rules=rules, change=change)
    assert found(after) and not found(before)
    assert after.case.fields.keys() == before.case.fields.keys()


def test_a_step_that_the_document_lacks_cannot_change() -> None:
    with pytest.raises(UserError, match="no step"):
        asked(rules='[{"rule": "min_p", "threshold": 0.1}]', change=("1.threshold", 0.5))


def test_without_a_case_the_declared_parameters_give_one() -> None:
    assert "bias" in asked((BIAS, {})).case.fields["extra_args"]


def test_rules_about_probabilities_leave_a_greedy_request_alone_as_the_plugin_does() -> None:
    rules = '[{"rule": "min_p", "threshold": 0.5}, {"rule": "ban", "phrases": [5]}]'
    steps = asked(rules=rules, case='{"temperature": 0}').processors
    assert [step.name for step in steps] == ["/0 min_p", "/1 ban"]
    assert "greedy" in steps[0].note and not steps[1].note
