"""Processors that meet arguments in odd forms: what becomes of the request, of its neighbours, of its admission."""

from __future__ import annotations

import contextlib
from typing import Any

import lpkit
import torch
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.arguments import INF, VOCAB
from zoo.portable_correct import PortableBias
from zoo.registry import defect, sound
from zoo.v1_correct import ByHand, V1Base


class Listed(V1Base):
    """Lowers the listed tokens; ids outside the vocabulary are ignored. The sound version."""

    CASE = {"extra_args": {"lower": [4, 9]}}

    @classmethod
    def read(cls, params: Any) -> Any:
        ids = (params.extra_args or {}).get("lower")
        if ids is None:
            return None
        if not isinstance(ids, list) or not all(type(item) is int for item in ids):
            raise ValueError("lower must be a list of token ids")
        return [item for item in ids if 0 <= item < VOCAB] or None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, ids in self.rows.items():
            logits[row, sorted(set(ids))] -= 2.0
        return logits


sound("takes any list of numbers, and ignores those outside the vocabulary", "v1")(Listed)


@defect("LP105", "sorts the client's own list", style="v1")
class SortsTheClientsList(Listed):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        ids = (params.extra_args or {}).get("lower")
        if ids:
            ids.sort()
        return self.read(params)


@defect("LP104", "keys of a mapping are ids, and nobody counts them", style="v1")
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


# -- the row itself --------------------------------------------------------------------------------------------


@defect("LP111", "NaN is a number, and adds up", style="v1")
class AnyFloat(V1Base):
    CASE = {"extra_args": {"bias": 2.5}}

    @classmethod
    def read(cls, params: Any) -> Any:
        bias = (params.extra_args or {}).get("bias")
        if bias is not None and type(bias) not in (int, float):
            raise ValueError("bias must be a number")
        return bias if bias is None or abs(bias) <= 1e30 or bias != bias else None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, bias in self.rows.items():
            logits[row, 5] += bias
        return logits


class Kept(Listed):
    """Keeps the listed tokens only; a list without tokens of the vocabulary changes nothing. The sound version."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, ids in self.rows.items():
            rest = torch.ones(logits.shape[1], dtype=torch.bool)
            rest[ids] = False
            if bool((logits[row][~rest] > -INF).any()):
                logits[row][rest] = -INF
        return logits


sound("a list of allowed tokens without any of this vocabulary allows all", "v1")(Kept)


@defect("LP111", "any finite number is accepted, also those that are infinite as a float32", style="v1")
class AnyFiniteFloat(AnyFloat):
    @classmethod
    def read(cls, params: Any) -> Any:
        bias = (params.extra_args or {}).get("bias")
        if bias is not None and not (type(bias) in (int, float) and -1e308 < bias < 1e308):
            raise ValueError("bias must be a finite number")
        return bias


@defect("LP111", "a list of allowed tokens without any of the vocabulary allows none", style="v1")
class AllowsNone(Kept):
    @classmethod
    def read(cls, params: Any) -> Any:
        ids = super().read(params)
        return [] if ids is None and (params.extra_args or {}).get("lower") else ids

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.rows, batch_update, self.enter)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in [row for row, ids in self.rows.items() if not ids]:
            logits[row] = -INF
        kept = {row: ids for row, ids in self.rows.items() if ids}
        self.rows, rows = kept, self.rows
        logits = super().apply(logits)
        self.rows = rows
        return logits


# -- its neighbours --------------------------------------------------------------------------------------------


class Careless(ByHand):
    """Validates only that there is something; reading it may raise."""

    @classmethod
    def validate_params(cls, params: Any) -> None:
        pass


@sound("an exception is caught for the one request", "v1")
class CatchesOne(Careless):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        try:
            return self.read(params)
        except ValueError:
            return None


@defect("LP112", "an exception is caught around the update, whose rest is lost", style="v1")
class CatchesAll(Careless):
    def additions(self, update: BatchUpdate) -> None:
        for row, *_ in update.added:
            self.place(row, None)
        with contextlib.suppress(ValueError):
            super().additions(update)


@defect("LP112", "switches itself off after the first exception", style="v1")
class SwitchesOff(CatchesOne):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.off = False

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        try:
            return self.read(params)
        except ValueError:
            self.off = True
            return None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.off else super().apply(logits)


# -- its admission ---------------------------------------------------------------------------------------------


@defect("LP113", "looks at the prompt, which is not there on V2 and for embeddings", style="portable")
class MeasuresPrompt(PortableBias):
    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        return len(request.prompt_token_ids or ()) + request.prompt_token_ids[0] >= 0  # type: ignore[index]


@defect("LP113", "takes the logarithm of a temperature that greedy requests do not have", style="portable")
class DividesByTemperature(PortableBias):
    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        return 1 / request.sampling_params.temperature > 0


@defect("LP113", "a table in which not every id has an entry", style="portable")
class ShortTable(PortableBias):
    TABLE = dict.fromkeys(range(VOCAB - 1), 1.0)

    def admit(self, request: lpkit.Request) -> bool:
        super().admit(request)
        return self.TABLE[request.params.token] > 0
