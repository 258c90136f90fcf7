"""Defects that LP102 must catch."""

from __future__ import annotations

from typing import Any

from zoo.bases import Boost
from zoo.correct.v1 import Bias
from zoo.registry import defect, sound


@defect("LP102", "refuses another plugin's arguments next to its own", fix="ignore keys that you do not know")
class OnlyMine(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        args = params.extra_args or {}
        if "bias" in args and args.keys() - {"bias", "token"}:
            raise ValueError("unknown arguments")
        super().validate_params(params)


@sound("needs a max_tokens, which the case does not give")
class NeedsLength(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        super().validate_params(params)
        if "bias" in (params.extra_args or {}) and params.max_tokens is None:
            raise ValueError("bias needs max_tokens")


@defect(
    "LP102",
    "refuses a long max_tokens, which need not be there before the engine fills it in",
    fix="expect None in a field",
)
class LimitsLength(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        super().validate_params(params)
        if "bias" in (params.extra_args or {}) and params.max_tokens > 4096:
            raise ValueError("max_tokens must be at most 4096")


@defect("LP102", "refuses requests that carry arguments, but not its own")
class RefusesForeign(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        if params.extra_args and "bias" not in params.extra_args:
            raise ValueError("bias is missing")
        cls.read(params)


@defect("LP102", "iterates over extra_args, which may be None", name="IteratesNone")
class IteratesNone(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        for key in params.extra_args:
            if key == "bias":
                cls.read(params)


@defect("LP102", "refuses requests whose extra_args lack its key")
class WantsItsKey(Boost):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        if params.extra_args is not None and cls.KEY not in params.extra_args and len(params.extra_args) > 0:
            raise ValueError(f"{cls.KEY} is required")
        cls.read(params)


@defect(
    "LP102",
    "checks the range of a default, which no client has sent",
    cause="`value` is 0 for a request without",
    also=("LP103", "LP104"),
)
class ChecksItsDefault(Boost):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        value = (params.extra_args or {}).get(cls.KEY, 0)
        if not cls.LOW < value <= cls.HIGH or value == 0:
            raise ValueError(f"{cls.KEY} is out of range: {value}")
