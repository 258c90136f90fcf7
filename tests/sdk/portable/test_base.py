"""Declarations are checked when a class is made, and instances share nothing."""

from __future__ import annotations

from typing import Any

import lpkit
import pytest
import torch
from sdk_hosts import V1Host, config
from sdk_plugins import Add, Weigh


def test_process_and_edit_together_are_refused() -> None:
    with pytest.raises(TypeError, match="both process and edit"):

        class Both(Weigh):
            def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
                return logits


def test_neither_process_nor_edit_is_refused_when_the_engine_constructs_it() -> None:
    class Neither(lpkit.LogitsProcessor):
        pass

    with pytest.raises(TypeError, match="Neither must override process or edit"):
        Neither(config(), torch.device("cpu"), False)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("stage", "sample", "stage must be one of logits, sampling, not 'sample'; did you mean 'sampling'"),
        ("history", "token", "history must be one of none, length, tokens, not 'token'; did you mean 'tokens'"),
        ("Params", dict, "Params must subclass lpkit.Params"),
        ("supports_spec_decode", True, "reserved for hooks of future vLLM"),
    ],
)
def test_mistakes_are_named_when_the_class_is_made(attribute: str, value: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("Wrong", (lpkit.LogitsProcessor,), {attribute: value})


def test_a_column_cannot_be_assigned_over() -> None:
    processor = V1Host(Add).processor
    with pytest.raises(AttributeError, match=r"write amount\[request.slot\] = value"):
        processor.amount = 3


def test_a_column_is_there_once_the_base_has_been_constructed() -> None:
    class Hasty(Add):
        def __init__(self, *arguments: Any) -> None:
            self.amount[0] = 3

    with pytest.raises(AttributeError, match="once the base's __init__ has run"):
        V1Host(Hasty)


def test_a_subclass_may_use_the_name_of_a_column_for_something_else() -> None:
    class Fixed(Add):
        amount = 5  # type: ignore[assignment]

    processor = V1Host(Fixed).processor
    assert processor.amount == 5
    processor.amount = 6
    assert processor.amount == 6


def test_columns_of_bases_are_inherited_and_instances_share_nothing() -> None:
    class More(Add):
        other = lpkit.column(torch.int64, default=4)

    first, second = V1Host(More).processor, V1Host(More).processor
    first.amount[0] = 7.0
    first.apply_staged_writes()
    assert first.amount.all[0] == 7
    assert second.amount.all[0] == 0
    assert second.other.all.tolist() == [4] * 9
