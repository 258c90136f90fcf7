"""lpkit-loop-breaker against a search of every period, in plain Python."""

from __future__ import annotations

import random

import pytest
import torch
from lpkit_loop_breaker import LoopBreaker
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of


def goes_on(output: list[int], times: int, least: int) -> int | None:
    """Return the token that continues the loop with the shortest span, if the output ends in a loop."""
    for span in range(1, len(output) // times + 1):
        length = max(span * times, least)
        end = output[len(output) - length :] if length <= len(output) else []
        if end and all(a == b for a, b in zip(end, end[span:], strict=False)):
            return output[-span]
    return None


def some_output(rng: random.Random) -> list[int]:
    span = [rng.randrange(9) for _ in range(rng.randint(1, 8))]
    looped = (span * 12)[: rng.randint(0, 50)]
    if rng.random() < 0.3 and looped:
        looped[rng.randrange(len(looped))] = 10  # a loop that was left
    return [*(rng.randrange(9) for _ in range(rng.randint(0, 9))), *looped]


@ON_EVERY_HOST
@pytest.mark.parametrize(("times", "least"), [(2, 2), (3, 12), (4, 30), (8, 2)])
def test_it_lowers_what_a_plain_search_finds(applied: Applied, times: int, least: int) -> None:
    rng = random.Random(times)
    outputs = [some_output(rng) for _ in range(60)]
    args = {"loop_times": times, "loop_tokens": least, "loop_penalty": 8.0}
    logits = logits_of(len(outputs))
    result = applied(LoopBreaker, logits, [Asked(args, [1, 2, 1, 2], output) for output in outputs])
    expected = logits.clone()
    found = [goes_on(output, times, least) for output in outputs]
    for row, token in enumerate(found):
        if token is not None:
            expected[row, token] -= 8.0
    agree(result, expected, "a search of every period in plain Python")
    assert 5 < sum(token is not None for token in found) < 55


@ON_EVERY_HOST
def test_a_loop_of_unknown_drafts_goes_on_with_nothing(applied: Applied) -> None:
    logits = logits_of(1)
    asked = Asked({"loop_times": 2, "loop_tokens": 2, "loop_penalty": 8.0}, [1], [-1, -1, -1])
    assert torch.equal(applied(LoopBreaker, logits.clone(), [asked]), logits)


@ON_EVERY_HOST
def test_the_tokens_of_an_end_follow_each_other_from_the_loop_on(applied: Applied) -> None:
    rng, end = random.Random(7), [1, 2, 4]
    outputs = [[*output, *end[: rng.randrange(4)]] for output in (some_output(rng) for _ in range(60))]
    args = {"loop_times": 2, "loop_tokens": 4, "loop_end": end}
    logits = logits_of(len(outputs))
    result = applied(LoopBreaker, logits, [Asked(args, [1, 2, 1, 2], output) for output in outputs])
    expected, due = logits.clone(), set()
    for row, output in enumerate(outputs):
        begun = [n for n in range(3) if output[len(output) - n :] == end[:n]]
        at = [n for n in begun if goes_on(output[: len(output) - n], 2, 4) is not None]
        if at:
            due.add(max(at))
            expected[row] = torch.full_like(logits[row], -torch.inf)
            expected[row, end[max(at)]] = logits[row, end[max(at)]]
    assert torch.equal(result, expected)
    assert due == {0, 1, 2}
