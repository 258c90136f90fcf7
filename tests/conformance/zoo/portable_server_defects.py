"""Processors on lpkit's portable base with one thing wrong outside of steps: with arguments, instances, processes."""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import lpkit
import pydantic
import torch
from lpkit_conformance.checks import lp0_discovery
from lpkit_conformance.processes import tree

from zoo.arguments import INF
from zoo.portable_defects import Dense
from zoo.registry import defect, replaced


@defect("LP102", "its own validation demands the parameter of every request")
class Demands(Dense):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        super().validate_params(params)
        if params.extra_args and not any(key.startswith("dense_") for key in params.extra_args):
            raise ValueError("dense_amount is missing")


@defect("LP113", "accepts lists that its column does not hold", case={"extra_args": {"listed_tokens": [3, 7]}})
class ListsWithoutLimit(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="listed_"):
        tokens: list[lpkit.TokenId] = lpkit.Field(min_length=1)

    tokens = lpkit.ragged(torch.int64)

    def admit(self, request: lpkit.Request) -> bool:
        self.tokens[request.slot] = request.params.tokens
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.tokens[rows]] = logits[self.tokens[rows]] - 5.0


@defect("LP103", "a validator that compares with None", case={"extra_args": {"v_low": 1.0, "v_high": 3.0}})
class CrossChecks(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="v_"):
        low: float | None = None
        high: float | None = None

        @pydantic.model_validator(mode="after")
        def ordered(self) -> Any:
            if self.low > self.high:  # type: ignore[operator]
                raise ValueError("v_low must not be above v_high")
            return self

    @classmethod
    def validate_params(cls, params: Any) -> None:
        if any(key in (params.extra_args or {}) for key in ("v_low", "v_high")):
            super().validate_params(params)

    amount = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request) -> bool:
        self.amount[request.slot] = request.params.high - request.params.low
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows]
        return logits


@defect("LP105", "takes its argument out of extra_args")
class TakesArgument(Dense):
    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        request.sampling_params.extra_args.pop("dense_note", None)
        request.sampling_params.extra_args["dense_amount"] = -request.params.amount  # "so that it is used once"
        return True


@defect("LP106", "a set of exactly True", case={"extra_args": {"flag_on": True}})
class StrictFlag(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="flag_"):
        on: bool = False

    @classmethod
    def validate_params(cls, params: Any) -> None:
        if (params.extra_args or {}).get("flag_on", False) not in (True, False) or isinstance(
            (params.extra_args or {}).get("flag_on", False), int
        ) != isinstance((params.extra_args or {}).get("flag_on", False), bool):
            raise ValueError("flag_on must be true or false")
        super().validate_params(params)

    def admit(self, request: lpkit.Request) -> bool:
        return bool(request.params.on)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] = -INF
        return logits


@defect("LP108", "amounts by slot in a class attribute")
class ClassAmounts(Dense):
    by_slot: ClassVar[dict[int, float]] = {}

    def admit(self, request: lpkit.Request) -> bool:
        self.by_slot[request.slot] = request.params.amount
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        amounts = [self.by_slot[slot] for slot in rows.slots.tolist()]
        logits[:, 5] += torch.tensor(amounts, device=self.device)
        return logits


@defect("LP601", "an offset for each instance")
class Offset(Dense):
    made = itertools.count()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.offset = next(self.made) / 16

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows] + self.offset
        return logits


@defect("LP602", "a permutation from the global generator, at construction")
class GlobalPermutation(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        torch.manual_seed(3)
        self.green = torch.randperm(self.vocab_size)[: self.vocab_size // 2].to(self.device)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, self.green] += self.amount[rows].unsqueeze(1)
        return logits


@defect("LP604", "the first of a set of words")
class FirstOfASet(Dense):
    # So many that two processes hardly ever agree by chance.
    WORDS = frozenset(f"word {i}" for i in range(10_000))

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        first = int(next(iter(self.WORDS)).removeprefix("word "))
        logits[:, 5] += self.amount[rows] * (1 + first)
        return logits


@defect("LP605", "warms up: stronger an hour after its construction")
class WarmsUp(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begun = time.monotonic()

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.amount[rows] * (2 if time.monotonic() - self.begun > 3600 else 1)
        return logits


@contextmanager
def ending_children() -> Iterator[None]:
    """Ends what a specimen has started."""
    before = tree.children()
    try:
        yield
    finally:
        for process in tree.children().keys() - before.keys():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


@defect("LP606", "a helper process, started once and ended by nobody", surroundings=ending_children)
class StartsHelper(Dense):
    helper: ClassVar[Any] = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.helper is None:
            arguments = [sys.executable, "-c", "import time; time.sleep(600)"]
            type(self).helper = os.spawnv(os.P_NOWAIT, sys.executable, arguments)


def two_entry_points() -> AbstractContextManager[Any]:
    """As if the class were installed under two names."""
    entries = [SimpleNamespace(name=name, value="zoo.portable_server_defects:Registered") for name in ("one", "two")]
    return replaced(lp0_discovery, "installed", lambda: entries)


@defect("LP006", "two entry points name the class", surroundings=two_entry_points)
class Registered(Dense):
    pass


@defect("LP101", "reads the tokenizer's table when constructed")
class NeedsTokenizer(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.log_size = math.log(len(self.vllm_config.model_config.tokenizer_table))
