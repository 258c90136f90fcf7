"""Source of the tokenizer of the engine's model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import lpkit
import pytest
from lpkit.interfaces.lookup import Lookup
from lpkit.runtime import V1Engine, V2Engine, make_config
from lpkit.vocabulary import lookup
from trained_tokenizers import byte_level


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    byte_level().save_pretrained(tmp_path)
    monkeypatch.setattr(lookup, "find", lambda name: Lookup(None, "absent"))
    return str(tmp_path)


class Knows(lpkit.LogitsProcessor):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ids = lpkit.words(self, ["yes", "no"])

    def process(self, logits: Any, rows: lpkit.Rows) -> Any:
        return logits


def test_transformers_loads_what_the_configuration_names_once(folder: str) -> None:
    found = lpkit.tokenizer(make_config(tokenizer=folder))
    assert found.get_vocab() == byte_level().get_vocab()
    assert lpkit.tokenizer(make_config(tokenizer=folder)) is found
    assert make_config(tokenizer=folder).model_config.model == folder


@pytest.mark.parametrize("place", lookup.VLLM_MODULES)
def test_vllms_own_function_is_asked_where_there_is_vllm(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, module = make_config(tokenizer="anything"), ModuleType(place)
    module.cached_tokenizer_from_config = lambda model: (place, model)  # type: ignore[attr-defined]
    monkeypatch.setattr(lookup, "find", lambda name: Lookup(module if name == place else None))
    assert lpkit.tokenizer(config) == (place, config.model_config)


def test_what_a_host_put_on_the_configuration_comes_first() -> None:
    config = make_config(tokenizer=byte_level())
    assert lpkit.tokenizer(config) is byte_level()
    config.model_config.skip_tokenizer_init = True
    assert lpkit.tokenizer(SimpleNamespace(vllm_config=config)) is byte_level()


def test_a_host_may_give_a_function_which_is_called_once() -> None:
    made = []

    def make() -> Any:
        made.append(byte_level())
        return made[-1]

    for _ in range(3):
        assert lpkit.tokenizer(make_config(tokenizer=make)) is byte_level()
    assert len(made) == 1


@pytest.mark.parametrize("engine", [V1Engine, V2Engine])
def test_engines_of_the_runtime_take_a_tokenizer(engine: Any) -> None:
    (made,) = engine([Knows], tokenizer=byte_level()).processors
    assert made.ids == lpkit.words(byte_level(), ["yes", "no"])


def test_without_a_tokenizer_the_message_says_what_to_do(folder: str) -> None:
    with pytest.raises(lpkit.NoTokenizer, match=r"started without a tokenizer \(skip_tokenizer_init\): start it with"):
        lpkit.words(make_config(), ["yes"])
    nameless = make_config(tokenizer="")
    with pytest.raises(lpkit.NoTokenizer, match=r"set model_config.lpkit_tokenizer"):
        lpkit.tokenizer(nameless)


def test_a_tokenizer_that_cannot_be_loaded_is_named(folder: str) -> None:
    with pytest.raises(lpkit.NoTokenizer, match="tokenizer '/nowhere/at/all' cannot be loaded"):
        lpkit.tokenizer(make_config(tokenizer="/nowhere/at/all"))


def test_where_transformers_is_missing_the_message_says_to_install_it(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(lpkit.NoTokenizer, match="pip install transformers"):
        lpkit.tokenizer(make_config(tokenizer=f"{folder}/."))


def test_what_has_no_configuration_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match=r"call super\(\).__init__ first"):
        lpkit.tokenizer(object())
