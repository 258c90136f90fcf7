"""The search finds tokens, lengths and declared arguments that switch a plugin on."""

from __future__ import annotations

import inspect
import os
from typing import Any

import lpkit
import pytest
import torch
from lpkit_conformance.activity.acting import Activity
from lpkit_conformance.activity.search import search
from lpkit_conformance.checks.catalogue import inactive
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.derived import derived_cases
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.suite.inactive import suggested, why_inactive
from zoo.bases import AfterMarker, IfBest, IfPrompted, Late, PortableLate
from zoo.correct.portable_odd import Between, Chance
from zoo.correct.v1 import Bias, DenseMinP
from zoo.correct.v1_few_steps import FirstTokenOnly, FromTheHundredth
from zoo.correct.v1_history import NoRepeatBigram
from zoo.lp109 import ChanceMistyped


def subject_of(cls: Any, case: dict[str, Any] | None = None, host: str = "v1") -> Subject:
    return Subject.of("target", cls, host, Case.parse(cls.CASE if case is None else case))


class FromTheFourHundredth(Late):
    FIRST = 400


class OnceInAWhile(Late):
    def due(self, outputs: list[int]) -> bool:
        return len(outputs) % 300 == 299


class AfterItsPhrase(Late):
    """Waits for a list of tokens, given as an argument."""

    CASE = {"extra_args": {"bias": 2.5, "token": 7, "phrase": [21, 22, 23]}}

    def due(self, outputs: list[int]) -> bool:
        return outputs[-3:] == [21, 22, 23]


class Never(Late):
    def due(self, outputs: list[int]) -> bool:
        return False


@pytest.mark.parametrize(
    ("cls", "key", "value"),
    [
        (AfterMarker, "output_token_ids", (300,)),
        (IfBest, "output_token_ids", (311,)),
        (IfPrompted, "prompt_token_ids", (322,)),
        (FromTheHundredth, "generated", 99),
    ],
)
def test_what_it_waits_for_becomes_part_of_the_case(cls: Any, key: str, value: Any) -> None:
    found = search(subject_of(cls))
    assert found is not None
    assert getattr(found.case, key) == value
    assert found.case.fields == cls.CASE
    assert Activity(subject_of(cls, {**found.case.fields, key: value})).acts


def test_a_list_among_its_arguments_is_generated_if_it_waits_for_that() -> None:
    found = search(subject_of(AfterItsPhrase))
    assert found is not None
    assert (found.case.output_token_ids, found.why) == ((21, 22, 23), "the plugin acts once phrase was generated")


@pytest.mark.parametrize("cls", [Bias, FirstTokenOnly, NoRepeatBigram])
def test_a_case_for_which_it_acts_soon_is_left_alone(cls: Any) -> None:
    assert search(subject_of(cls)) is None


def test_a_greedy_case_is_served_with_a_temperature_if_the_plugin_claims_argmax_invariance() -> None:
    found = search(subject_of(DenseMinP, {**DenseMinP.CASE, "temperature": 0.0}))
    assert found is not None
    assert found.case.fields == DenseMinP.CASE


def test_a_case_with_more_min_tokens_than_are_tried_is_searched() -> None:
    assert search(subject_of(Never, {**Never.CASE, "min_tokens": 16})) is None


def test_without_a_case_one_is_derived_from_the_declared_parameters() -> None:
    found = search(subject_of(PortableLate, {}))
    assert found is not None
    assert set(found.case.fields["extra_args"]) == {"late_bias", "late_token", "late_start"}
    assert PortableLate.Params.parse(found.case.fields["extra_args"]) is not None


@pytest.mark.parametrize("cls", [Chance, Between])
def test_values_are_tried_with_each_other_until_the_plugin_acts_early_and_often(cls: Any) -> None:
    found = search(subject_of(cls, {}))
    assert found is not None
    assert not found.case.generated
    assert found.soon >= 2
    assert found.early >= 3


def test_tokens_of_different_parameters_differ_and_occur_in_a_history_that_is_read() -> None:
    for case in derived_cases(Between, subject_of(Between, {}).plugin.accepts):
        opens, closes = (case.fields["extra_args"][f"between_{name}"] for name in ("opens", "closes"))
        assert opens != closes
        assert {opens, closes} <= set(case.output_token_ids)


def test_a_derived_case_with_which_the_plugin_only_fails_is_judged() -> None:
    found = search(subject_of(ChanceMistyped, {}))
    assert found is not None
    assert not found.soon


class TakesJson(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="json_"):
        text: str = lpkit.Field(examples=['{"a": 1}', "[2]"])

    def process(self, logits: Any, rows: Any) -> Any:
        return logits + 1.0


def test_the_examples_of_a_field_are_its_cases() -> None:
    cases = derived_cases(TakesJson, lambda params: True)
    assert [case.fields["extra_args"]["json_text"] for case in cases[:2]] == ['{"a": 1}', "[2]"]


class EveryKind(lpkit.LogitsProcessor):
    history = "tokens"

    class Params(lpkit.Params, prefix="kind_"):
        share: float = lpkit.Field(gt=0.0, lt=1.0)
        mode: str = lpkit.Field(default="off", pattern="^(off|on)$")
        window: int | None = lpkit.Field(default=None, ge=2, le=9)
        ids: list[lpkit.TokenId] = lpkit.Field(min_length=2)

    def process(self, logits: Any, rows: Any) -> Any:
        return logits + 1.0


def test_derived_cases_are_accepted_and_repeat_tokens_for_a_reader_of_the_history() -> None:
    found = search(subject_of(EveryKind, {}, "v2"))
    assert found is not None
    assert EveryKind.Params.parse(found.case.fields["extra_args"]) is not None
    assert len(set(found.case.output_token_ids)) < len(found.case.output_token_ids)


def results_of(cls: Any) -> tuple[Session, list[Any]]:
    session = Session("target", cls, Plan(cases=(Case.parse(cls.CASE),), select=("LP201", "LP202", "LP203", "LP303")))
    return session, list(session.results())


def test_acting_too_late_for_the_bookkeeping_is_no_verdict() -> None:
    session, results = results_of(FromTheFourHundredth)
    assert not [result for result in results if result.status == "failed"]
    assert [result.code for result in results if result.status == "passed" and result.code == "LP303"]
    assert inactive(results)
    assert "too few checks to judge its bookkeeping: first after 400 output tokens" in session.hint()
    assert "with a smaller threshold" in session.hint()


@pytest.mark.parametrize("cls", [Never, OnceInAWhile])
def test_acting_in_no_step_or_hardly_any_is_no_verdict(cls: Any) -> None:
    session, results = results_of(cls)
    assert inactive(results)
    assert '{"output_token_ids": [...]}' in session.hint()


def test_acting_from_the_hundredth_token_is_judged_and_noted() -> None:
    session, results = results_of(FromTheHundredth)
    assert not inactive(results)
    assert {result.status for result in results} == {"passed"}
    assert "edits were first seen at 100 output tokens" in session.notes[0]


class WantsAList(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        given = (params.extra_args or {}).get("ids")
        if given is not None and not (isinstance(given, list) and len(given) == 2):
            raise ValueError("ids must be two token ids")

    @classmethod
    def read(cls, params: Any) -> None:
        cls.validate_params(params)


def test_a_suggested_case_is_one_that_the_plugin_accepts() -> None:
    subject = subject_of(WantsAList, {})
    subject.plugin.accepts(subject.params(0))
    case = suggested(subject, ["ids"])
    assert case is not None
    assert subject.plugin.accepts(case.params())
    assert f"--case '{case.text}'" in why_inactive([subject])


class LastTwenty(NoRepeatBigram):
    """Edits the last twenty tokens before ``max_tokens``."""

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return None if self.read(params) is None else (params.max_tokens, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (most, outputs) in self.rows.items():
            if most - len(outputs) <= 20:
                logits[row, 2] += 3.0
        return logits


def test_what_waits_for_the_end_gets_requests_that_end_soon() -> None:
    open_end = subject_of(LastTwenty)
    found = search(open_end)
    assert found is not None
    assert found.case.fields["max_tokens"] == 8
    assert '{"max_tokens": N}' in why_inactive([open_end])
    found = search(subject_of(LastTwenty, {**LastTwenty.CASE, "max_tokens": 40}))
    assert found is not None
    assert found.case.generated == 19


class NamesAWord(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="named_"):
        words: lpkit.TokenIdsOf

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        """Nothing: no request gets here."""


@pytest.mark.parametrize("host", ["v1", "v2"])
def test_what_declined_a_case_at_admission_is_reported(host: str) -> None:
    case = {"extra_args": {"named_words": ["two words"]}}
    found = why_inactive([subject_of(NamesAWord, case, host=host)])
    assert "is declined at admission (ValueError: named_words: 'two words' is not one token of the model but 2" in found


class ReadsAWord(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="read_"):
        word: str

    def admit(self, request: lpkit.Request) -> bool:
        return int(request.params.word) > 0

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        """Nothing: no request gets here."""


class ReadsOneWord(ReadsAWord):
    def admit(self, request: lpkit.Request) -> bool | None:  # type: ignore[override]
        if request.params.word == "strict":
            return True
        return None


class LooksItUp(Bias):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        return None if bias is None else {"a": 1.0}[bias]


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (ReadsAWord, "is declined at admission (ValueError: invalid literal for int() with base 10: 'a', test_search"),
        (ReadsOneWord, "is declined at admission (`admit` returned None)"),
        (LooksItUp, "fails at admission (update_state: raised KeyError: "),
    ],
)
def test_a_suggested_case_that_is_not_admitted_is_reported(cls: Any, said: str) -> None:
    subject = subject_of(cls, {})
    assert search(subject) is None
    assert said in why_inactive([subject])


class NeedsMore(Bias):
    """Acts with a field of the configuration, one of the model's, and on a GPU only."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        asked = getattr(vllm_config, "block_config", None), getattr(vllm_config.model_config.hf_config, "marks", None)
        self.acts = None not in asked and device.type == "cuda"

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) if self.acts else logits


SWITCH = "NOT_SET_FOR_LPKIT"


class NeedsVariable(Bias):
    RULE = os.environ.get(SWITCH)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) if self.RULE else logits


def test_a_variable_of_the_environment_that_is_not_set_is_named() -> None:
    line = inspect.getsourcelines(NeedsVariable)[1] + 1
    found = why_inactive([subject_of(NeedsVariable)])
    assert f"Line {line} of test_search.py reads the environment variable {SWITCH}, which is not set" in found
    assert f'`[tool.lpkit] environment = {{ {SWITCH} = "value" }}`' in found
    assert SWITCH not in why_inactive([subject_of(NeedsMore)])


def test_what_the_class_asked_of_its_engine_in_vain_is_reported() -> None:
    found = why_inactive([subject_of(NeedsMore)])
    line = inspect.getsourcelines(NeedsMore)[1] + 5
    lacks = "which lpkit's configuration lacks: "
    assert f"It looked for `vllm_config.block_config` (test_search.py:{line}), {lacks}check a subclass" in found
    assert (
        f"`hf_config.marks` (test_search.py:{line}), {lacks}set it in `model` of [tool.lpkit]. Line {line + 1}" in found
    )
    assert "use --device cuda" in found
    assert "looked for" not in why_inactive([subject_of(Never)])
