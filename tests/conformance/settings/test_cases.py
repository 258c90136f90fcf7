"""Cases: refused cases and their messages, and the relatives that keep neighbours distinguishable."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from lpkit_conformance.errors import CaseError
from lpkit_conformance.settings.cases import VARIANTS, Case, WatchedArgs, neighbours, variants

VOCAB = 512


def anything(params: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "JSON object"),
        (7, "JSON object"),
        ({"extra_arg": {}}, "did you mean 'extra_args'"),
        ({"output_tokens_ids": [1]}, "did you mean 'output_token_ids'"),
        ({"target_token": 67}, '"extra_args"'),
        ({"extra_args": [1]}, "extra_args must be an object"),
        ({"prompt_token_ids": 5}, "prompt_token_ids must be a list of token ids"),
        ({"output_token_ids": [True]}, "output_token_ids must be a list of token ids"),
        ({"output_token_ids": [-1]}, "output_token_ids must be a list of token ids"),
        ({"temperature": -1.0}, "SamplingParams refuses"),
        ({"logit_bias": {"five": 1.0}}, "SamplingParams refuses"),
        ({"reasoning": [5]}, "must be an object"),
        ({"reasoning": {"start": [5]}}, "needs start and end"),
        ({"reasoning": {"begin": [5]}}, "unknown key 'begin'"),
        ({"reasoning": {"start": [5], "end": ["x"]}}, "reasoning.end"),
    ],
)
def test_a_wrong_case_is_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises(CaseError, match=message):
        Case.parse(value)


def test_text_and_mapping_give_the_same_case() -> None:
    given = {"extra_args": {"token": 67}, "temperature": 0.5, "output_token_ids": [1, 2]}
    found = Case.parse(json.dumps(given))
    assert found == Case.parse(given)
    assert json.loads(found.text) == given


def test_a_case_of_python_values_is_what_a_client_sends() -> None:
    case = Case.parse({"extra_args": {"ids": (4, 5), "weights": {7: 1.5}}})
    assert case.fields["extra_args"] == {"ids": [4, 5], "weights": {"7": 1.5}}
    assert case == Case.from_json(case.to_json())


def test_each_request_gets_parameters_of_its_own() -> None:
    case = Case.parse({"extra_args": {"ids": [1, 2]}})
    case.params().extra_args["ids"].append(3)
    assert case.params().extra_args == {"ids": [1, 2]}


def test_the_keys_of_a_logit_bias_are_ints_as_vllm_makes_them() -> None:
    case = Case.parse('{"logit_bias": {"5": 1.0, "7": -200}}')
    assert case.params().logit_bias == {5: 1.0, 7: -100.0}


def test_token_ids_are_all_ints_of_the_arguments_and_no_bools() -> None:
    case = Case.parse({"extra_args": {"on": True, "map": {"a": [4, 5]}, "x": 0.5}, "prompt_token_ids": [9]})
    assert case.token_ids() == (4, 5, 9)


@pytest.mark.parametrize(
    "extra",
    [{"token": 67}, {"token": VOCAB - 1}, {"p": 0.2}, {"ids": [[1], [2, 3]]}, {"map": {"a": 1.0}}, {"a": 1, "b": "x"}],
)
def test_relatives_differ_from_the_case_and_from_each_other(extra: dict[str, Any]) -> None:
    found = variants(Case.parse({"extra_args": extra}), anything, VOCAB)
    texts = [case.text for case in found]
    assert len(set(texts[:VARIANTS])) == VARIANTS == len(texts[:VARIANTS])
    assert all(0 <= case.fields["extra_args"].get("token", 0) < VOCAB for case in found)


@pytest.mark.parametrize("extra", [{"token": 67}, {"mode": "strict"}, {"on": True}, {"weights": {"5": 1.0}}])
def test_what_the_plugin_refuses_has_no_relatives(extra: dict[str, Any]) -> None:
    case = Case.parse({"extra_args": extra})

    def only_this(params: Any) -> bool:
        return bool(params.extra_args == extra)

    assert variants(case, only_this, VOCAB) == [case]
    assert neighbours(case, only_this, VOCAB, lambda: ["lax"]) == []


@pytest.mark.parametrize(
    ("value", "others"),
    [
        (True, [False]),
        (1, [0]),
        ("strict", ["STRICT", "strics", "stricts"]),
        ("A", ["a", "B", "AA"]),
        (["ab", "cd"], [["AB", "cd"], ["aa", "cd"], ["aba", "cd"]]),
        ({"5": 1, "4": 2}, [{"5": 1, "3": 2}]),
        ({"way": "0"}, [{"wax": "0"}, {"way": "1"}, {"way": "00"}]),
    ],
)
def test_flags_texts_and_keys_have_relatives_if_numbers_have_none(value: Any, others: list[Any]) -> None:
    case = Case({"extra_args": {"it": value}})

    def accepts(params: Any) -> bool:
        return params.extra_args["it"] in (value, *others)

    assert [other.fields["extra_args"]["it"] for other in variants(case, accepts, VOCAB)] == [value, *others]


def test_words_of_the_class_are_tried_where_other_letters_are_refused() -> None:
    modes = ["strict", "lax", "none", "loose", "last"]
    case = Case({"extra_args": {"mode": "strict"}})
    found = neighbours(case, lambda params: params.extra_args["mode"] in modes, VOCAB, lambda: ["mode", *modes])
    assert [other.fields["extra_args"]["mode"] for other in found] == ["lax", "none", "loose"]


def test_relatives_with_less_lack_one_argument_or_one_item() -> None:
    found = variants(Case.parse({"extra_args": {"ids": [4, 9], "by": 2.0}}), anything, VOCAB)[VARIANTS:]
    assert [case.fields["extra_args"] for case in found] == [{"by": 2.0}, {"ids": [5], "by": 2.0}, {"ids": [4, 9]}]


def test_plain_fields_have_relatives_too() -> None:
    found = variants(Case.parse({"presence_penalty": 1.0}), anything, VOCAB)
    assert len({case.fields["presence_penalty"] for case in found}) == VARIANTS


def test_watched_arguments_note_what_is_read_and_copy_like_a_dict() -> None:
    looked_at: set[str] = set()
    args = WatchedArgs({"a": 1}, looked_at)
    assert args.get("b") is None
    assert "c" not in args
    assert args["a"] == 1
    assert looked_at == {"a", "b", "c"}
    twin = copy.deepcopy(args)
    assert twin == {"a": 1}
    assert twin.get("d") is None
    assert "d" in looked_at
    assert type(pickle.loads(pickle.dumps(args))) is dict


def test_markers_of_a_thought_are_part_of_a_case() -> None:
    given = {"extra_args": {"budget": 3}, "reasoning": {"start": [5], "end": [6, 7]}}
    case = Case.parse(given)
    assert json.loads(case.text) == given
    assert Case.parse(case.text) == case
    assert case.token_ids() == (3, 5, 6, 7)


@pytest.mark.parametrize(
    ("ids", "same"),
    [([3, 9, 14], [39, 14]), ([9, 14], [91, 4]), ([7, 500], None), ([9, -1], None), ([-2, -3], None), ([0, 0], None)],
)
def test_a_neighbour_has_the_same_digits_where_ids_can(ids: list[int], same: list[int] | None) -> None:
    relatives = neighbours(Case({"extra_args": {"ids": ids}}), lambda params: True, 512)
    digits = [item.fields["extra_args"]["ids"] for item in relatives]
    alike = [other for other in digits if "".join(map(str, other)) == "".join(map(str, ids))]
    assert alike == ([] if same is None else [same])
