"""The table of facts about vLLM: lookups by key and release, and errors for what is misspelt."""

from __future__ import annotations

import pytest
from lpkit_conformance.vllm_api.facts import VLLM, UnknownFactError, in_full, in_short, numbers, read

TABLE = """
developed_with = "0.2.0"
compared = "2026-01-01"
[facts.Runners]
default = "The default"
lacks = "What it lacks"
[releases."0.1.0"]
default = "old"
[releases."0.2.0"]
notice = "A new default"
torch = "2.9.0"
default = "new"
lacks = ["drafts when x > 1", "pooling"]
[releases."0.2.0.1"]
[releases."0.3.0"]
lacks = "pooling"
"""


def test_a_value_holds_from_its_release_until_the_next_one() -> None:
    table = read(TABLE)
    wanted = {"0.0.9": "-", "0.1.0": "old", "0.1.5": "old", "0.2.0": "new", "0.2.0.1": "new", "9.0.0": "new"}
    assert {version: table.value("default", numbers(version)) for version in wanted} == wanted
    assert table.value("default", None) == "new"
    assert table.entries("lacks", (0, 1, 0)) == ()


def test_entries_are_asked_for_without_their_conditions() -> None:
    table = read(TABLE)
    assert table.value("lacks", (0, 2, 0)) == "drafts when x > 1; pooling"
    assert table.since("lacks", "drafts") == (0, 2, 0)
    assert [table.has("lacks", "drafts", release) for release in ((0, 1, 0), (0, 2, 0), None)] == [False, True, False]


def test_a_row_has_what_plugin_authors_notice_and_the_torch_to_certify_with() -> None:
    table = read(TABLE)
    assert table.names == ("0.1.0", "0.2.0", "0.2.0.1", "0.3.0")
    assert [(row.notice, row.torch) for row in table.rows if row.notice] == [("A new default", "2.9.0")]


@pytest.mark.parametrize(
    ("key", "entry", "message"),
    [
        ("defualt", "new", "there is no fact 'defualt' about vLLM; did you mean 'default'?"),
        ("lacks", "poling", "lacks of vLLM never was 'poling'; did you mean 'pooling'?"),
        ("default", "qqq", "default of vLLM never was 'qqq'; known: old, new"),
    ],
)
def test_what_is_misspelt_is_an_error_that_names_the_nearest(key: str, entry: str, message: str) -> None:
    for ask in (lambda: read(TABLE).since(key, entry), lambda: read(TABLE).has(key, entry, None)):
        with pytest.raises(UnknownFactError) as error:
            ask()
        assert str(error.value) == message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('default = "new"', 'defualt = "new"', "vLLM 0.2.0: there is no fact 'defualt'; did you mean 'default'?"),
        ('default = "new"', 'default = "old"', "vLLM 0.2.0: default is what it was before"),
        ('"0.3.0"', '"0.1.9"', "the releases of vLLM are not in order, oldest first"),
    ],
)
def test_a_table_that_does_not_agree_with_itself_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises((UnknownFactError, ValueError)) as error:
        read(TABLE.replace(old, new))
    assert str(error.value) == message


def test_the_release_that_lpkit_is_developed_with_can_be_certified() -> None:
    assert [bool(row.torch) for row in VLLM.rows if row.name == VLLM.developed_with] == [True]


@pytest.mark.parametrize(("version", "short"), [("0.31.0", "0.31"), ("0.11.1", "0.11.1"), ("0.10.1.1", "0.10.1.1")])
def test_a_release_in_words(version: str, short: str) -> None:
    assert (in_full(numbers(version)), in_short(numbers(version))) == (version, short)
