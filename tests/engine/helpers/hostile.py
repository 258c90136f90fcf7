"""Documents of rules as texts: right ones, and ones that are wrong by a single change, so that each answer is known."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

NAMES = (
    "__class__",
    "__init__",
    "admit",
    "rule",
    "min_p\u0000",
    "\u202emin_p",
    "\U0001f60a",
    "..",
    "",
    "MIN_P",
    "min-p",
)
HUGE = (10**400, -(10**400), 1e308, -1e308, 2**63)
ODD: tuple[Any, ...] = ({}, {"__class__": 1}, {"a": {"b": {"c": []}}}, [[[[]]]], "\ud83d", [None], {"rule": "min_p"})


def right(rng: random.Random) -> list[dict[str, Any]]:
    """Return a document that is accepted."""
    steps: list[dict[str, Any]] = [
        {"rule": "min_p", "threshold": rng.random()},
        {"rule": "penalties", "repetition": 1 + rng.random()},
        {"rule": "ban", "phrases": [f"w{rng.randrange(3, 400)}"]},
        {"rule": "bias", "ids": [rng.randrange(400)], "values": [rng.uniform(-5, 5)]},
        {"rule": "allow", "ids": rng.sample(range(400), 20)},
        {"rule": "no_repeat_ngram", "size": rng.randint(1, 4), "when": {"from": rng.randint(0, 3)}},
    ]
    return rng.sample(steps, rng.randint(1, 4))


def _a_step(rng: random.Random, change: Callable[[dict[str, Any]], Any]) -> str:
    """Return a right document with one step changed in place or replaced."""
    steps: list[Any] = right(rng)
    nth = rng.randrange(len(steps))
    steps[nth] = change(steps[nth]) or steps[nth]
    return json.dumps(steps)


def _value(rng: random.Random, step: dict[str, Any], value: Any) -> None:
    step[rng.choice([key for key in step if key not in ("rule", "when")])] = value


CHANGES: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: _a_step(rng, lambda step: step.update(rule=rng.choice(NAMES))),
    lambda rng: _a_step(rng, lambda step: step.update({rng.choice(NAMES[:3] + NAMES[4:]): rng.random()})),
    lambda rng: _a_step(rng, lambda step: _value(rng, step, rng.choice(ODD))),
    lambda rng: _a_step(rng, lambda step: _value(rng, step, rng.choice(HUGE))),
    lambda rng: _a_step(rng, lambda step: step.update(when=rng.choice([{"form": 1}, {"from": -1}, {"every": 0}, 7]))),
    lambda rng: _a_step(rng, lambda step: rng.choice([7, "min_p", [step], True])),
    lambda rng: json.dumps(rng.choice([7, "x", True, {"a": 1}, {"preset": 3}, {"preset": {"__init__": 1}}])),
    lambda rng: json.dumps(right(rng))[: -rng.randint(1, 9)],
    lambda rng: "[" * rng.randint(1, 60_000),
    lambda rng: json.dumps([{"rule": "ban", "ids": [7] * rng.randint(40_000, 1_000_000)}]),
    lambda rng: json.dumps([{"rule": "min_p", "threshold": rng.choice([float("nan"), float("inf")])}]),
    lambda rng: json.dumps(right(rng) * 20),
)


def documents(seed: int, count: int) -> Iterator[tuple[str, bool]]:
    """Yield texts of documents, and True for those that are right, one in four."""
    rng = random.Random(seed)
    for _ in range(count):
        good = rng.random() < 0.25
        yield (json.dumps(right(rng)) if good else rng.choice(CHANGES)(rng)), good
