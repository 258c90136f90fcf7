"""`--vllm`: what an older release does not do, no plugin is blamed for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lpkit_conformance.errors import UsageError
from lpkit_conformance.run import Options, plan_for, run
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.release_rules import rules_of
from zoo.correct.v1 import Bias

BAN = "zoo.correct.portable:PortableBan"


@pytest.mark.parametrize(
    ("version", "hosts", "without"),
    [
        ("0.33.0", None, ()),
        ("0.31.0", None, ()),
        ("0.30.0", ("v1",), ()),
        ("0.13.0", ("v1",), ("LP505", "LP508", "LP509")),
        ("0.11.0", ("v1",), ("LP102", "LP103", "LP114", "LP505", "LP508", "LP509")),
        ("0.10.2", ("v1",), ("LP102", "LP103", "LP114", "LP503", "LP505", "LP508", "LP509")),
    ],
)
def test_a_release_is_judged_by_what_it_does(
    version: str, hosts: tuple[str, ...] | None, without: tuple[str, ...]
) -> None:
    plan = plan_for(Options(release=version))
    assert (plan.hosts, plan.ignore) == (hosts, without)
    assert all(code in rules_of(version).note for code in without)


@pytest.mark.parametrize(
    ("version", "message"),
    [("0.27.9", "did you mean '0.27.1'"), ("0.10.1", "0.10.2 is the oldest"), ("nine", "The newest known one is")],
)
def test_unknown_and_unsupported_releases_are_refused_with_one_that_is_known(version: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        rules_of(version)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "asked", [{"hosts": ("v2",)}, {"engine": "vllm"}, {"engine": "together"}], ids=lambda asked: next(iter(asked))
)
def test_what_a_release_cannot_be_asked_for_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        run([BAN, "zoo.correct.v1:Bias"], Options(release="0.27.1", **asked))


def test_the_report_says_by_which_rules_it_judged(in_process: None) -> None:
    options = Options(release="0.27.1", cases=('{"extra_args": {"ban_ids": [5]}}',), select=("LP101",))
    (judged,) = run([BAN], options).targets
    assert judged.hosts == ("v1",)
    assert judged.notes[0] == "judged by the rules of vLLM 0.27.1: V2 loads no custom processors before 0.31.0"
    assert judged.verdict == "pass"


def test_a_v2_class_cannot_be_judged_by_the_rules_of_a_release_before_it() -> None:
    (v2,) = run(["zoo.correct.v2:V2Loop"], Options(release="0.27.1", select=("LP101",))).targets
    assert "V2's interface alone" in v2.error


class RefusesAll(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        raise ValueError("not today")


def test_validation_that_nothing_calls_refuses_nothing() -> None:
    plugin = Subject.of("x", RefusesAll, "v1", Case.parse(Bias.CASE))
    assert not plugin.plugin.accepts(plugin.params(None))
    assert replace(plugin.plugin, release=(0, 11, 0)).accepts(plugin.params(None))
