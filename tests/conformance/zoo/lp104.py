"""Defects that LP104 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from lpkit import v2

from zoo.arguments import number, tokens
from zoo.correct.v1 import Bias, V1Base
from zoo.correct.v2 import V2Base, V2Bias
from zoo.registry import defect, sound


@defect("LP104", "keys of a mapping are ids, and nobody counts them")
class MappedIds(V1Base):
    CASE = {"extra_args": {"shift": {"7": 1.5}}}

    @classmethod
    def read(cls, params: Any) -> Any:
        shift = (params.extra_args or {}).get("shift")
        if shift is None:
            return None
        if not isinstance(shift, dict) or not all(str(key).isdecimal() for key in shift):
            raise ValueError("shift must map token ids to numbers")
        if not all(type(item) in (int, float) and abs(item) < 100 for item in shift.values()):
            raise ValueError("shift must map token ids to numbers in (-100, 100)")
        return {int(key): float(item) for key, item in shift.items()} or None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, shift in self.rows.items():
            for where, by in shift.items():
                logits[row, where] += by
        return logits


@defect("LP104", "edits the first stop token, of which a request need not have any")
class NeedsStopToken(V1Base):
    CASE = {"extra_args": {"bias": 2.5}, "stop_token_ids": [5]}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        return None if bias is None else (bias, params.stop_token_ids[0])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, where) in self.rows.items():
            logits[row, where] += bias
        return logits


@sound("edits the first stop token of a request that has one")
class UsesStopToken(NeedsStopToken):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return super().enter(params, prompt, outputs) if params.stop_token_ids else None


@defect("LP104", "takes any integer for a token id; one outside the vocabulary ends the engine", fix="vocabulary size")
class AnyToken(Bias):
    @classmethod
    def read(cls, params: Any) -> Any:
        args = params.extra_args or {}
        bias, where = number(params, "bias"), args.get("token")
        if where is None or bias is None:
            return None
        if type(where) is not int or where < 0:
            raise ValueError("token must be a token id")
        return where, bias


@defect(
    "LP104",
    "leaves out ids beyond the vocabulary, but not its size",
    line="where > self.vocab_size",
    cause="`where > self.vocab_size` lets 512 through, but ids begin at 0, so the last of 512 ids is 511",
    fix="`id < size`",
)
class LetsTheSizeThrough(AnyToken):
    def __init__(self, vllm_config: Any, *args: Any) -> None:
        super().__init__(vllm_config, *args)
        self.vocab_size = vllm_config.model_config.get_vocab_size()

    def beyond(self, where: int) -> bool:
        return where > self.vocab_size

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return None if state is None or self.beyond(state[0]) else state


@sound("leaves out all ids beyond the vocabulary")
class LeavesTheSizeOut(LetsTheSizeThrough):
    def beyond(self, where: int) -> bool:
        return where >= self.vocab_size


@defect(
    "LP104",
    "refuses what is too large for 64 bits, one bit late",
    case={"extra_args": {"boost_seed": 12}},
    line="dtype=torch.int64",
    fix="int64 does not hold it",
)
class SixtyFourBits(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("boost_seed")
        if value is not None and (type(value) is not int or not 0 <= value < 2**64):
            raise ValueError("boost_seed must be an unsigned 64-bit integer")
        return value

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            seeds = torch.tensor(list(self.rows.values()), dtype=torch.int64)
            logits[torch.tensor(list(self.rows)), 3 + seeds % 12] += 4.0
        return logits


@defect(
    "LP104",
    "a seed of 64 bits in a column of 32",
    case={"extra_args": {"pick": 21}},
    cause="the number does not fit in the type of `self.picks` (int32)",
    fix="store it in a type that holds it",
)
class NarrowColumn(V2Base):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.picks = torch.zeros(req_states.max_num_reqs, dtype=torch.int32)

    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("pick")
        if value is not None and (type(value) is not int or not 0 <= value < 2**63):
            raise ValueError("pick must be a signed 64-bit integer")
        return value

    def add_request(self, req_idx: int, params: Any) -> bool:
        value = self.read(params)
        self.values[req_idx] = float(value is not None)
        self.picks[req_idx] = value or 0
        return value is not None

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        picks = self.picks.to(self.device)[ctx.expanded_idx_mapping.long()].long() % 12
        return logits.scatter_add_(1, picks.unsqueeze(1), self.per_row(ctx).unsqueeze(1))


@defect("LP104", "a table of eight ids, and nobody who counts them")
class EightAtMost(V2Bias):
    CASE = {"extra_args": {"ids": [4, 9], "by": -3.0}}

    @classmethod
    def validate_params(cls, params: Any) -> None:
        cls.read(params)
        tokens(params, "ids")


@defect("LP104", "one entry short for the longest list that it accepts", case={"extra_args": {"lowered": [5, 9]}})
class OneShort(V1Base):
    LONGEST = 64

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.table = torch.zeros(self.max_num_seqs, self.LONGEST - 1, dtype=torch.int64)

    @classmethod
    def read(cls, params: Any) -> Any:
        ids = tokens(params, "lowered")
        if ids is not None and len(ids) > cls.LONGEST:
            raise ValueError(f"lowered holds at most {cls.LONGEST} ids")
        return ids

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, ids in self.rows.items():
            self.table[row, : len(ids)] = torch.tensor(ids)
            logits[row, self.table[row, : len(ids)]] -= 2.0
        return logits


@defect("LP104", "text that reads as a number is accepted, and stays text")
class TextIsANumber(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    @classmethod
    def validate_params(cls, params: Any) -> None:
        bias = (params.extra_args or {}).get("bias")
        try:
            refused = bias is not None and (isinstance(bias, bool) or not -10 <= float(bias) <= 10)
        except (TypeError, ValueError, OverflowError):
            refused = True
        if refused:
            raise ValueError("bias must be a number in [-10, 10]")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return (params.extra_args or {}).get("bias")

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, bias in self.rows.items():
            logits[row, 5] = logits[row, 5] + bias
        return logits


@sound("text that reads as a number is made one")
class TextBecomesANumber(TextIsANumber):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = super().enter(params, prompt, outputs)
        return None if bias is None else float(bias)


@defect("LP104", "compares the first of two ids with the vocabulary", case={"extra_args": {"pair": [5, 9]}})
class ChecksTheFirst(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        pair = (params.extra_args or {}).get("pair")
        if pair is None:
            return None
        if not isinstance(pair, list) or [type(item) for item in pair] != [int, int] or min(pair) < 0 or pair[0] >= 512:
            raise ValueError("pair must be two token ids")
        return pair

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, pair in self.rows.items():
            logits[row, pair] += 1.0
        return logits


@defect("LP104", "knows the limit once an instance has been made; a front end has none")
class LearnsTheLimit(AnyToken):
    limit: Any = None

    def __init__(self, vllm_config: Any, *args: Any) -> None:
        super().__init__(vllm_config, *args)
        type(self).limit = vllm_config.model_config.get_vocab_size()

    @classmethod
    def read(cls, params: Any) -> Any:
        state = super().read(params)
        if state is not None and cls.limit is not None and state[0] >= cls.limit:
            raise ValueError("token must be an id of the vocabulary")
        return state

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return super().read(params)


@defect(
    "LP104",
    "an entry of its object may be missing in validation, and not where it is used",
    line='w["weight"]',
    advice="refused",
)
class NestedDefault(V1Base):
    CASE = {"extra_args": {"wish": {"token": 7, "weight": 2.0, "way": "up"}}}

    @classmethod
    def read(cls, params: Any) -> Any:
        wish = (params.extra_args or {}).get("wish")
        if wish is None:
            return None
        if not isinstance(wish, dict) or type(wish.get("token")) is not int or not 0 <= wish["token"] < 512:
            raise ValueError("wish needs a token")
        weight, way = wish.get("weight", 1.0), wish.get("way", "up")
        if type(weight) is not float or not -9 <= weight <= 9 or type(way) is not str:
            raise ValueError("wish.weight is a number in [-9, 9], and wish.way a text")
        return cls.held(wish, weight, way)

    @classmethod
    def held(cls, wish: dict[str, Any], weight: float, way: str) -> Any:
        return wish["token"], wish

    def amount(self, w: Any) -> float:
        return float(w["weight"])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, held) in self.rows.items():
            logits[row, where] += self.amount(held)
        return logits


@defect("LP104", "any text is accepted in its object, and used as a key", line="}[w]")
class NestedText(NestedDefault):
    @classmethod
    def held(cls, wish: dict[str, Any], weight: float, way: str) -> Any:
        return wish["token"], way

    def amount(self, w: Any) -> float:
        return {"up": 2.0, "down": -2.0}[w]


@sound("defaults for the entries of its object")
class NestedRead(NestedDefault):
    @classmethod
    def held(cls, wish: dict[str, Any], weight: float, way: str) -> Any:
        return wish["token"], weight if way == "up" else -weight

    def amount(self, w: Any) -> float:
        return float(w)


@defect("LP104", "looks up what a request's seed was drawn from", line="self.drawn[params.seed]")
class NeedsKnownSeed(Bias):
    drawn: ClassVar[dict[Any, int]] = {None: 0}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state and (state[0], state[1] + self.drawn[params.seed])


@defect("LP104", "divides by the temperature", line="/ params.temperature")
class DividesByTemperature(Bias):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state and (state[0], state[1] / params.temperature)


@defect("LP104", "expects requests without output", line="assert not outputs")
class ExpectsNewRequests(Bias):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        assert not outputs or state is None
        return state


@sound("divides by the temperature of requests that have one")
class DividesByItsTemperature(DividesByTemperature):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return super().enter(params, prompt, outputs) if params.temperature else self.read(params)


@defect("LP104", "factors for the first 36 tokens of an output, and none for those after", line="FACTORS[len(")
class FewFactors(Bias):
    FACTORS: ClassVar[list[float]] = [1.0 + n / 36 for n in range(36)]

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        found = self.read(params)
        return found and (*found, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, outputs) in self.rows.items():
            logits[row, where] += bias * self.FACTORS[len(outputs)]
        return logits


@sound("factors for the first 36 tokens of an output, of which the last goes on")
class FewFactorsAndOn(FewFactors):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, outputs) in self.rows.items():
            logits[row, where] += bias * self.FACTORS[min(len(outputs), 35)]
        return logits


@defect("LP104", "accepts letters of which its table lacks the large ones", cause="`self.WEIGHTS` has no entry 'A'")
class WeighsSmallLetters(V1Base):
    CASE = {"extra_args": {"letters": "abc"}}
    WEIGHTS: ClassVar[dict[str, int]] = {letter: place for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}

    @classmethod
    def read(cls, params: Any) -> Any:
        letters = (params.extra_args or {}).get("letters")
        if letters is not None and not (isinstance(letters, str) and letters.isalpha() and letters.isascii()):
            raise ValueError("letters must be letters")
        return letters

    def weigh(self, letters: str) -> str:
        return letters

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        letters = self.read(params)
        return letters and sum(self.WEIGHTS[letter] for letter in self.weigh(letters)) / len(letters)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, weight in self.rows.items():
            logits[row, 3] += weight
        return logits


@sound("weighs large letters as small ones")
class WeighsLetters(WeighsSmallLetters):
    def weigh(self, letters: str) -> str:
        return letters.lower()


@defect("LP104", "misses an optional argument only after the fourth token", cause="`args` has no entry 'token'")
class MissesItLater(V1Base):
    CASE = {"extra_args": {"bias": 2.5, "token": 7}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return None if self.read(params) is None else (params.extra_args, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (args, outputs) in self.rows.items():
            if len(outputs) > 3:
                logits[row, args["token"] % 512] += args["bias"]
        return logits


@defect("LP104", "takes 5.0 for a token id, and indexes with it", cause="an index must be an `int`", fix="`int(value)`")
class IndexesWithFloats(V1Base):
    CASE = {"extra_args": {"token": 7}}

    @classmethod
    def read(cls, params: Any) -> Any:
        where = (params.extra_args or {}).get("token")
        if where is not None and (type(where) not in (int, float) or where not in range(512)):
            raise ValueError("token must be a whole number below 512")
        return None if where is None else (where,)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where,) in self.rows.items():
            logits[row, where] -= 6.0
        return logits
