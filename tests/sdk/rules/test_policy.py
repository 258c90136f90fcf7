"""An operator's file limits and extends what requests may ask for; a wrong file names its mistake."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lpkit.rules.chain import Rules
from lpkit.rules.document import RULES
from lpkit.rules.policy import VARIABLE, Limits, Policy, PolicyError
from lpkit.sampling_params import SamplingParams

BAN = {"rule": "ban", "phrases": [3]}
MIN_P = {"rule": "min_p", "threshold": 0.1}


def asked(document: Any) -> dict[str, Any]:
    return {"rules": document}


def test_the_operators_steps_stand_around_the_requests() -> None:
    policy = Policy(first=[BAN], last=[MIN_P])
    steps = policy.steps(asked([{"rule": "dry", "multiplier": 0.8}]))
    assert [step.rule for step in steps] == ["ban", "dry", "min_p"]
    assert [step.rule for step in policy.steps(None)] == ["ban", "min_p"]


def test_requests_may_use_the_allowed_rules_only_and_the_operator_all() -> None:
    policy = Policy(allow=("min_p",), first=[BAN], documents={"safe": [BAN]})
    assert len(policy.steps(asked([MIN_P]))) == 2
    assert len(policy.steps(asked("safe"))) == 2
    with pytest.raises(ValueError, match="'ban' is no rule here; known: min_p"):
        policy.steps(asked([BAN]))


def test_a_set_stands_for_its_items() -> None:
    policy = Policy(sets={"house": [5, 6]})
    (step,) = policy.steps(asked([{"rule": "ban", "phrases": [1, {"set": "house"}]}]))
    assert step.args["phrases"] == [1, 5, 6]
    with pytest.raises(ValueError, match="rules/0/phrases: no set 'hose'; did you mean 'house'"):
        policy.steps(asked([{"rule": "ban", "phrases": [{"set": "hose"}]}]))


def test_a_tuple_is_a_list_whatever_was_asked_before() -> None:
    policy = Policy()
    assert policy.steps(asked((MIN_P,))) == policy.steps(asked([MIN_P])) == policy.steps(asked((MIN_P,)))


def test_the_rules_that_requests_can_meet_are_those_of_the_operator_too() -> None:
    assert Policy(allow=["min_p"], last=[BAN]).rules == {"min_p", "ban"}


def test_documents_have_names() -> None:
    policy = Policy(documents={"creative": [MIN_P]})
    assert [step.rule for step in policy.steps(asked("creative"))] == ["min_p"]
    with pytest.raises(ValueError, match="'creativ'; did you mean 'creative'"):
        policy.steps(asked("creativ"))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([BAN] * 3, "3 steps; at most 2"),
        (json.dumps([BAN]) + " " * 200, "bytes; at most 100"),
        ("{" * 90, "not JSON"),
        ("[" * 90, "not JSON"),
        (7, "a list of steps, not int"),
        ({"a": 1}, "a list of steps, not dict"),
        ([None], "rules/0: a step is an object, not NoneType"),
        ([{"rule": ["ban"]}], "is no rule here"),
        ([{"rule": "ban", "phrases": [1], "when": []}], "rules/0/when: an object is needed"),
        ([{"rule": "min_p", "threshold": True}], "rules/0/threshold"),
        ([{"rule": "min_p", "threshold": None}], "min_p needs threshold"),
        ([{"rule": "min_p", "threshold": 0.1, "__class__": 1}], "rules/0/__class__: unknown"),
        ([{"rule": "ban"}], "phrases or words is needed"),
        ([{"rule": "ban", "phrases": [True]}], "rules/0/phrases/0: "),
        ([{"rule": "ban", "phrases": [1], "when": {"after": [[1]]}}], "rules/0/when/after/0: "),
        (
            [{"rule": "ban", "phrases": [1], "when": {"after": [{"set": "x"}]}}],
            "rules/0/when/after: no set 'x'; there are",
        ),
        ({"rule": "min_p", "threshold": 0.1}, "not dict; put the step into brackets"),
        ([{5: 1}], "rules/0/rule: None is no rule"),
        ('[{"rule": "min_p", "threshold": NaN}]', "NaN is not a JSON number"),
        ([{"rule": "bias", "ids": [1, 2], "values": [1]}], "ids and values differ in length: 2 and 1"),
        ([{"rule": "temperature", "low": 2, "high": 1}], "low 2.0 is above high 1.0"),
    ],
)
def test_a_wrong_document_is_refused_with_a_pointer(document: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        Policy(limits=Limits(steps=2, bytes=100)).steps(asked(document))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("allow = @", "line 1"),
        ('allow = ["min_q"]', "'min_q' is no rule; did you mean 'min_p'"),
        ("limit = {}", "limit: unknown; did you mean 'limits'"),
        ("[limits]\nstep = 3", "limits.step: unknown; did you mean 'steps'"),
        ('[limits]\nsteps = "8"', "limits.steps: Input should be a valid integer"),
        ("[sets]\nhouse = [true]", "sets.house"),
        ('[limits]\nsteps = "many"', "limits.steps: Input should be a valid integer"),
        ('first = [{ rule = "min_p" }]', "first/0: min_p needs threshold"),
        ('[documents]\nnew = [{ rule = "ban", words = [{ set = "x" }] }]', "documents.new/0/words: no set 'x'"),
    ],
)
def test_a_wrong_file_names_its_mistake(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError, match=said) as refused:
        Policy.load(file)
    assert str(file) in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(sorted(RULES)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["rule", "when", "ids", "phrases", "threshold", "set", "from"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(document=JSON | st.lists(JSON, max_size=4), as_text=st.booleans())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_json_is_steps_or_one_short_refusal(document: Any, as_text: bool) -> None:
    try:
        given = SamplingParams(extra_args={"rules": json.dumps(document) if as_text else document})
    except ValueError:  # integers that the transport does not hold never reach a plugin, except as text
        assert not as_text
        return
    with contextlib.suppress(ValueError):
        Rules.validate_params(given)
        return
    with pytest.raises(ValueError, match="rules") as refused:
        Rules.validate_params(given)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("text", ["[" * 60_000, "[" + "9" * 5000 + "]", '["\\ud800"]', "[1e999]", "\x00"])
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rules"):
        Rules.validate_params(SamplingParams(extra_args={"rules": text}))


def test_a_server_with_a_wrong_file_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.toml"))
    with pytest.raises(PolicyError, match=r"none\.toml"):
        Rules(None, None)
