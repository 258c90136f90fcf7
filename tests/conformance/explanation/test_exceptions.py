"""The cause of an exception, read from its text and the author's frames."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lpkit_conformance.explanation.advice import text_at
from lpkit_conformance.explanation.exceptions import read


def one_too_many(tokens: list[int], output_ids: list[int]) -> int:
    if len(output_ids) <= len(tokens):
        return tokens[len(output_ids)]
    return -1


def returns_late(tokens: list[int], output_ids: list[int]) -> int:
    step = len(output_ids)
    if step > len(tokens):  # output_ids
        return -1
    return tokens[step]


def far_beyond(tokens: list[int]) -> int:
    return tokens[len(tokens) + 3]


def at_the_end(logits: torch.Tensor) -> torch.Tensor:
    return logits.gather(1, torch.full((2, 1), logits.shape[1]))


def lost_dimension(logits: torch.Tensor) -> torch.Tensor:
    return logits / torch.ones(2, 1).squeeze()


def two_vocabularies(logits: torch.Tensor) -> torch.Tensor:
    return logits + torch.ones(2, 9)


def without_entry(values: dict[int, float], row: int) -> float:
    return values[row]


def too_many(row: torch.Tensor, k: int) -> torch.Tensor:
    return row.topk(k).values


def by_rank(logits: torch.Tensor, k: int) -> torch.Tensor:
    ordered = logits.sort(descending=True).values
    return logits >= ordered[:, k]


def by_ranks(logits: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    ordered, _ = logits.sort(descending=True)
    return logits >= ordered.gather(1, k - 1)


def counted(row: torch.Tensor, k: int, token: int) -> torch.Tensor:
    return row[torch.tensor([token]) if k <= len(row) else ...]


def checked(row: torch.Tensor, token: int) -> torch.Tensor:
    return row[torch.tensor([token]) if token <= len(row) else ...]


def by_float(row: torch.Tensor, ids: list[float]) -> torch.Tensor:
    return row[torch.tensor(ids)]


def of_empty(row: torch.Tensor, ids: list[int]) -> torch.Tensor:
    where = torch.tensor(ids)
    return row[where]


def of_padding(logits: torch.Tensor, ids: torch.Tensor, dim: int = -1) -> torch.Tensor:
    return logits.gather(dim, ids)


def by_number(table: dict[Any, float], token: int) -> float:
    return table[token]


def added_up(table: dict[Any, float]) -> int:
    total = 0
    for token in table:  # total
        total += token
    return total


def seeded(seed: int) -> Any:
    seeds = np.zeros(2, dtype=np.int64)
    seeds[0] = seed
    return seeds


def shared(total: int, counts: list[int], slot: int) -> float:
    return total / 2 + counts[slot] / len(counts[1:]) + divmod(total, 3)[0]


def shared_by_call(total: int, other: int) -> float:
    return total / int(str(other))


def from_environment(scale: float) -> float:
    weight = os.getenv("LPKIT_TEST_UNSET")
    return scale / weight  # type: ignore[operator]


def passed_on(is_pin_memory: bool) -> Any:
    return {"pinned": is_pin_memory}, float(os.environ["LPKIT_TEST_UNSET"])


def beside_environment(table: dict[str, float]) -> tuple[float, str]:
    name = os.getenv("LPKIT_TEST_UNSET", "")
    scale = table["scale"]
    return scale, name


def in_a_byte(limits: torch.Tensor, row: int, limit: int) -> None:
    limits[row] = limit


def latest(recent: deque[int], add: Any = 0) -> int:
    if add:
        return recent + add
    return recent[1]


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        (lambda: in_a_byte(torch.zeros(2).to(torch.int8), 0, 150), "the number does not fit in the type of `limits`"),
        (
            lambda: returns_late([5, 6], output_ids=[5, 6]),
            "`tokens` has 2 entries, and `step` is 2; the index equals the",
        ),
        (
            lambda: one_too_many([5, 6], [5, 6]),
            "`tokens` has 2 entries, and `len(output_ids)` is 2; the index equals the",
        ),
        (
            lambda: far_beyond([5, 6]),
            "`tokens` has 2 entries, and `len(tokens) + 3` is 5; an index lies beyond the end",
        ),
        (lambda: latest(deque([8])), "`recent` has 1 entry, and the index is 1"),
        (lambda: latest(deque([8]), "x"), "`recent` is deque([8]) and `add` is 'x'"),
        (lambda: from_environment(2.0), "`weight` is None; the line needs an environment variable"),
        (lambda: passed_on(False), "the line needs an environment variable"),
        (lambda: beside_environment({}), "`table` has no entry 'scale'; the line looks up"),
        (lambda: shared(7, [5], 0), "`len(counts[1:])` is 0; the line divides"),
        (lambda: shared_by_call(7, 0), "`other` is 0; the line divides"),
        (lambda: at_the_end(torch.zeros(2, 8)), "8 is no token id"),
        (lambda: lost_dimension(torch.zeros(2, 8)), "the line combines one value per row"),
        (lambda: two_vocabularies(torch.zeros(2, 8)), ""),
        (lambda: without_entry({1: 0.5}, 2), "`values` has no entry 2; the line looks up what is not there"),
        (lambda: too_many(torch.zeros(8), 9), "`k` is 9, more than the 8 entries of `row`; k must be at least 1"),
        (lambda: too_many(torch.zeros(8), -9), "`k` is -9; k must be at least 1"),
        (lambda: by_rank(torch.zeros(2, 8), 9), "`k` holds 9; k must be at least 1"),
        (
            lambda: by_ranks(torch.zeros(2, 8), torch.full((2, 1), 10)),
            "the index is 9, and the size 8; k must be at least 1",
        ),
        (lambda: counted(torch.zeros(8), 3, 8), "`token` holds 8; the index equals the size"),
        (lambda: by_float(torch.zeros(8), [0.5]), "`ids` is [0.5]; an index tensor must hold integers"),
        (lambda: by_float(torch.zeros(8), []), "`ids` is empty; an index tensor must hold integers"),
        (lambda: of_padding(torch.zeros(2, 8), torch.tensor([[5], [-1]])), "`ids` holds -1; -1 is not a token"),
        (lambda: by_number({"3": 0.5}, 3), "`table` has no entry 3; JSON turns the keys"),
        (lambda: by_number({3: 0.5, "4": 0.5}, 5), "`table` has no entry 5; the line looks up"),
    ],
)
def test_an_exceptions_cause_names_what_the_line_found(call: Callable[[], Any], cause: str) -> None:
    with pytest.raises((IndexError, KeyError, RuntimeError, TypeError, ZeroDivisionError)) as raised:
        call()
    explanation = read(raised.type.__name__, str(raised.value), raised.value)
    assert bool(explanation.line) is (
        "output_ids" in cause or "step" in cause
    )  # of the condition that let the index through
    assert explanation.cause.startswith(cause)
    assert bool(explanation.cause) is bool(cause)


@pytest.mark.parametrize(
    ("call", "cause", "fix", "line"),
    [
        (lambda: of_empty(torch.zeros(8), []), "`where` is empty, and made of `ids`", "dtype=torch.long", "where ="),
        (lambda: added_up({"3": 0.5}), "`token` is '3'; JSON turns", "int(key)", "for token in table"),
        (lambda: checked(torch.zeros(8), 8), "`token <= len(row)` lets 8", "id < size", "token <= len(row)"),
        (lambda: seeded(2**63), "the type of `seeds` (int64) in which", "n & (2**63 - 1)", ""),
        (lambda: in_a_byte(torch.zeros(2).to(torch.int8), 0, 150), "`limits` (int8) in", "such as int64", ""),
        (lambda: torch.zeros(2).fill_(1e300), "in the type (float32) in", "bound the argument", ""),
    ],
)
def test_a_fix_suits_what_the_line_found(call: Callable[[], Any], cause: str, fix: str, line: str) -> None:
    with pytest.raises(Exception) as raised:
        call()
    explanation = read(raised.type.__name__, str(raised.value), raised.value)
    assert cause in explanation.cause
    assert fix in explanation.fix
    assert line in text_at(explanation.line) if line else not explanation.line


class Context:
    expanded_idx_mapping = torch.tensor([7, 3])


def by_slot(logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
    return logits[torch.tensor([7])]


def masked_by_slot(logits: torch.Tensor) -> torch.Tensor:
    return logits[torch.ones(9, dtype=torch.bool)]


@pytest.mark.parametrize(
    ("call", "cause", "fix"),
    [
        (lambda: by_slot(torch.zeros(2, 8), Context()), "7 is the number of a slot", "index the logits by rows"),
        (lambda: by_slot(torch.zeros(2, 8)), "the logits have 2 rows, one for each", "index the logits by rows"),
        (lambda: masked_by_slot(torch.zeros(2, 8)), "the mask has 9 entries", "index the logits by rows"),
        (lambda: at_the_end(torch.zeros(2, 8)), "8 is no token id of the model", "leave out the ids"),
        (lambda: by_slot(torch.zeros(5)), "7 is no token id of the model", "leave out the ids"),
    ],
)
def test_an_index_is_told_apart_by_what_it_meets(call: Callable[[], Any], cause: str, fix: str) -> None:
    with pytest.raises((IndexError, RuntimeError)) as raised:
        call()
    explanation = read(raised.type.__name__, str(raised.value), raised.value)
    assert cause in explanation.cause
    assert explanation.fix.startswith(fix)


def test_a_condition_in_a_property_lets_the_index_through() -> None:
    class Plan:
        def __init__(self) -> None:
            self.tokens, self.output = [5], [6]

        @property
        def finished(self) -> bool:
            return len(self.output) > len(self.tokens)

        def due(self) -> int:
            return -1 if self.finished else self.tokens[len(self.output)]

    with pytest.raises(IndexError) as raised:
        Plan().due()
    line = read("IndexError", str(raised.value), raised.value).line
    assert "len(self.output) > len(self.tokens)" in text_at(line)


def test_a_callable_with_three_parameters_is_told_how_vllm_counts() -> None:
    explanation = read("TypeError", "soften() takes 2 positional arguments but 3 were given")
    assert "keyword-only" in explanation.cause and "functools.partial" in explanation.fix


def test_a_method_that_lpkit_calls_is_told_its_signature() -> None:
    explanation = read("TypeError", "Rule.process() takes 2 positional arguments but 3 were given")
    assert "`def process(self, logits, rows)`" in explanation.fix
