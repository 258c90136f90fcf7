"""Defects that LP201 must catch in classes whose arguments are flags, words and texts, and correct ones like them."""

from __future__ import annotations

from typing import Any, ClassVar

import lpkit
import torch

from zoo.arguments import Way, number
from zoo.correct.v1 import V1Base
from zoo.registry import defect, sound


@sound("its only argument is one of two words")
class OneOfTwoWords(V1Base):
    CASE = {"extra_args": {"manner": "mild"}}
    AMOUNTS: ClassVar[dict[str, float]] = {"mild": 1.0, "harsh": 3.0}

    @classmethod
    def read(cls, params: Any) -> Any:
        manner = (params.extra_args or {}).get("manner")
        if manner is not None and (not isinstance(manner, str) or manner not in cls.AMOUNTS):
            raise ValueError("manner must be mild or harsh")
        return None if manner is None else cls.AMOUNTS[manner]

    def amount(self, state: Any) -> float:
        return float(state)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            logits[row, 5] += self.amount(state)
        return logits


@defect("LP201", "the last request's word goes to all", line="self.harsh = ", state="self.harsh")
class LastWordForAll(OneOfTwoWords):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        if state is not None:
            self.harsh = state > 1
        return state

    def amount(self, state: Any) -> float:
        return 3.0 if self.harsh else 1.0


@sound("a flag next to a number")
class FlagBesideNumber(OneOfTwoWords):
    CASE = {"extra_args": {"bias": 2.5, "down": True}}

    @classmethod
    def read(cls, params: Any) -> Any:
        bias, down = number(params, "bias"), (params.extra_args or {}).get("down", False)
        if bias is not None and down not in (False, True):
            raise ValueError("down must be true or false")
        return None if bias is None else (bias, bool(down))

    def amount(self, state: Any) -> float:
        return float(-state[0] if state[1] else state[0])


@defect("LP201", "the key lacks the flag", advice="key-argument", cause="their `down` differs")
class FlagNotInKey(FlagBesideNumber):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.states: dict[float, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state and self.states.setdefault(state[0], state)


@sound("takes any text, whose letters count")
class CountsLetters(OneOfTwoWords):
    CASE = {"extra_args": {"title": "Hello"}}

    @classmethod
    def read(cls, params: Any) -> Any:
        title = (params.extra_args or {}).get("title")
        if title is not None and (not isinstance(title, str) or not 0 < len(title) < 40):
            raise ValueError("title must be a text of 1 to 39 letters")
        return title

    def counted(self, title: str) -> float:
        return sum(map(ord, title)) % 49 / 10

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        title = self.read(params)
        return title and self.counted(title)


@defect("LP201", "the key ignores the case of letters", advice="key-argument", cause="their `title` differs")
class KeyInLowerCase(CountsLetters):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.amounts: dict[str, float] = {}

    def key(self, title: str) -> str:
        return title.lower()

    def counted(self, title: str) -> float:
        return self.amounts.setdefault(self.key(title), super().counted(title))


@defect("LP201", "the key is a text's first letter and length", advice="key-argument", cause="their `title` differs")
class KeyOfLength(KeyInLowerCase):
    def key(self, title: str) -> str:
        return f"{title[0]}{len(title)}"


@defect("LP201", "the key is an object's values", advice="key-argument", cause="their `weights` differs")
class KeyOfValues(OneOfTwoWords):
    CASE = {"extra_args": {"weights": {"7": 2.5, "9": 1.5}}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tables: dict[Any, dict[int, float]] = {}

    @classmethod
    def read(cls, params: Any) -> Any:
        weights = (params.extra_args or {}).get("weights")
        if weights is None:
            return None
        if not isinstance(weights, dict) or not all(key.isdecimal() and int(key) < 512 for key in weights):
            raise ValueError("weights must map token ids below 512 to numbers")
        if not all(type(value) in (int, float) and abs(value) < 100 for value in weights.values()):
            raise ValueError("weights must be numbers between -100 and 100")
        return {int(key): float(value) for key, value in weights.items()}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weights = self.read(params)
        return weights and self.tables.setdefault(tuple(weights.values()), weights)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, weights in self.rows.items():
            for token, weight in weights.items():
                logits[row, token] += weight
        return logits


class OneOfTwoWays(lpkit.LogitsProcessor):
    """Raises or lowers a token; the sound version."""

    CASE = {"extra_args": {"one_way": "up"}}

    class Params(lpkit.Params, prefix="one_"):
        way: Way

    amount = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = 2.0 if request.params.way == "up" else -2.0
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows]
        return logits


sound("its only parameter is a Literal of another module")(OneOfTwoWays)


@defect("LP201", "the last request's way goes to all", line="self.last = ", state="self.last")
class LastWayForAll(OneOfTwoWays):
    def admit(self, request: lpkit.Request) -> bool:
        self.last = request.params.way == "up"
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += 2.0 if self.last else -2.0
        return logits
