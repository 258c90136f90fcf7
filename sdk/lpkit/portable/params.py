"""Typed per-request parameters, read from ``SamplingParams.extra_args`` (``vllm_xargs`` over HTTP)."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

import pydantic
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json

from lpkit._nearest import suggest
from lpkit.portable.token_ids import INT64_MAX, INT64_MIN, is_token_id
from lpkit.portable.words import check_word_fields

Self = TypeVar("Self", bound="Params")


class Params(BaseModel):
    """Base for a processor's parameters; each field is one key of ``SamplingParams.extra_args``.

    ``class Params(lpkit.Params, prefix="mine_")`` puts ``mine_`` before every key; a key with that prefix which
    is not a field is then refused, with the nearest match. Keys of other plugins are ignored.

    A field without a default is required: a request that gives none of the fields does not use the
    processor. What arrives over HTTP has passed through JSON and msgpack, so values must be JSON values: bools and
    lists of them take 0 and 1 too, an int field refuses bools, ints fit in 64 bits, floats are finite.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    lpkit_prefix: ClassVar[str] = ""

    def __init_subclass__(cls, prefix: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if prefix is not None:
            cls.lpkit_prefix = prefix

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        check_word_fields(cls, cls.keys())

    def check_together(self) -> None:
        """Override to refuse what only several fields together make wrong: raise ``ValueError``, naming the keys."""

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Which keys of ``extra_args`` the processor reads.

        Returns:
            The name of the field for each key.
        """
        return {field.alias or cls.lpkit_prefix + name: name for name, field in cls.model_fields.items()}

    @classmethod
    def token_id_fields(cls) -> tuple[str, ...]:
        """Which fields hold token ids, to be compared with the model's vocabulary.

        Returns:
            The names of fields declared as :data:`TokenId` or a collection of it.
        """
        found = []
        for name, field in cls.model_fields.items():
            if is_token_id(field.annotation, field.json_schema_extra, field.metadata):
                found.append(name)
        return tuple(found)

    @classmethod
    def parse(cls: type[Self], extra_args: Mapping[str, Any] | None) -> Self | None:
        """Read and validate the parameters of one request.

        Args:
            extra_args: of the request; None and a key whose value is None are as if they were not given.

        Returns:
            The parameters, or None if the request gives none of the required ones, as it does not use this processor.

        Raises:
            ValueError: naming the key, the value and the rule it breaks.
        """
        extra_args = extra_args or {}
        # The engine waits while a request is admitted, and the same values come again and again.
        table = _TABLES.get(cls) or _table(cls)
        number = None
        if len(extra_args) == 1:  # mostly, and a number: its type and its value say as much as its JSON, sooner
            ((key, value),) = extra_args.items()
            kind = type(value)
            if kind in _NUMBERS:
                number = (key, kind, value or repr(value))  # 0.0 equals -0.0
                found: Self | None = table.memo.get(number)
                if found is not None:
                    return found
        found = cls._read(table, extra_args)
        if number is not None and found is not None:
            table.remember(number, found)
        return found

    @classmethod
    def _read(cls: type[Self], table: _Table, extra_args: Mapping[str, Any]) -> Self | None:
        given = {key: extra_args[key] for key in table.inputs if extra_args.get(key) is not None}
        prefix = cls.lpkit_prefix
        if prefix and len(given) < len(extra_args):
            for key in extra_args:
                if key not in table.inputs and isinstance(key, str) and key.startswith(prefix):
                    raise ValueError(f"unknown parameter {key!r}; {suggest(key, table.inputs)}")
        if not table.required <= given.keys():
            if not given:
                return None
            missing = [key for key in table.inputs if key in table.required and key not in given]
            raise ValueError(f"{', '.join(sorted(given))} given without {', '.join(missing)}")
        try:
            # JSON tells apart what validation does: 1, 1.0 and true; 0.0 and -0.0.
            text = to_json(given, inf_nan_mode="constants")
            found: Self | None = table.memo.get(text)
            if found is not None:
                return found
            plain = from_json(text, allow_inf_nan=True)
        except (ValueError, TypeError):
            raise _not_json(given) from None
        found = cls._validated(plain, table.inputs)
        if len(text) <= _LONGEST:
            table.remember(text, found)
        return found

    @classmethod
    def _validated(cls: type[Self], given: Mapping[str, Any], inputs: Mapping[str, _Input]) -> Self:
        values = {inputs[key].name: _checked(key, value, inputs[key].bools) for key, value in given.items()}
        try:
            # Strict mode reads JSON the way the REST layer sends it: a list may fill a tuple, True is not an int.
            params = cls.model_validate_json(to_json(values), strict=True)
        except pydantic.ValidationError as error:
            raise ValueError(_explain(error, cls)) from None
        params.check_together()
        return params


_NUMBERS = frozenset({bool, int, float})
_REMEMBERED = 256
_LONGEST = 4096
"""Bytes of JSON: longer values are not remembered."""


Bools = Literal["none", "one", "many"]
"""Whether a parameter is a bool, or a list of them."""


class _Input(typing.NamedTuple):
    """What a key of ``extra_args`` becomes."""

    name: str  # as pydantic takes it
    bools: Bools


@dataclass(slots=True)
class _Table:
    """What parsing asks about a class of parameters; pydantic's own tables are slow to ask."""

    inputs: dict[str, _Input]  # by key
    required: frozenset[str]
    memo: dict[bytes | tuple[Any, ...], Any]  # what JSON, or a number, has given before

    def remember(self, given: bytes | tuple[Any, ...], params: Params) -> None:
        try:
            hash(params)
        except TypeError:
            return  # it holds a list or the like, which one request's processor could change under another's
        if len(self.memo) >= _REMEMBERED:
            self.memo.clear()
        self.memo[given] = params


_TABLES: dict[type[Params], _Table] = {}


def _table(cls: type[Params]) -> _Table:
    fields, keys = cls.model_fields, cls.keys()
    inputs = {key: _Input(fields[name].alias or name, _bools(fields[name].annotation)) for key, name in keys.items()}
    required = frozenset(key for key, name in keys.items() if fields[name].is_required())
    _TABLES[cls] = found = _Table(inputs, required, {})
    return found


def _unwrap(annotation: Any) -> Any:
    """``bool`` from ``bool | None`` and from ``Annotated[bool, ...]``."""
    if get_origin(annotation) is Annotated:
        return _unwrap(get_args(annotation)[0])
    if get_origin(annotation) in (typing.Union, UnionType):
        options = [option for option in get_args(annotation) if option is not type(None)]
        return _unwrap(options[0]) if len(options) == 1 else annotation
    return annotation


def _bools(annotation: Any) -> Bools:
    annotation = _unwrap(annotation)
    if annotation is bool:
        return "one"
    elements = [part for part in get_args(annotation) if part is not Ellipsis]
    held = get_origin(annotation) in (list, tuple, set, frozenset) and all(_unwrap(part) is bool for part in elements)
    return "many" if held else "none"


def _not_json(given: Mapping[str, Any]) -> ValueError:
    """Names the key whose value JSON cannot carry."""
    for key, value in given.items():
        try:
            from_json(to_json({key: value}, inf_nan_mode="constants"), allow_inf_nan=True)
        except (ValueError, TypeError) as error:
            return ValueError(f"{key}: {type(value).__name__} is not a JSON value ({error})")
    return ValueError(f"{', '.join(given)}: not JSON values")


def _checked(key: str, value: Any, bools: Bools) -> Any:
    """A JSON value whose ints fit in 64 bits; bools that the REST layer has made numbers of are bools again."""
    _refuse_wide_ints(key, value)
    if bools == "one":
        return _as_bool(value)
    return [_as_bool(item) for item in value] if bools == "many" and isinstance(value, list) else value


def _as_bool(value: Any) -> Any:
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


def _refuse_wide_ints(key: str, value: Any) -> None:
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError(f"{key}: {value} does not fit in a signed 64-bit integer")
    elif isinstance(value, list | dict):
        for item in value if isinstance(value, list) else value.values():
            _refuse_wide_ints(key, item)


def _explain(error: pydantic.ValidationError, cls: type[Params]) -> str:
    parts = []
    names = {name: key for key, name in cls.keys().items()}
    errors = error.errors(include_url=False)
    for item in errors:
        if item["type"] == "too_short" and any(_lies_in(item["loc"], other["loc"]) for other in errors):
            continue  # pydantic counts valid items only
        where = [str(part) for part in item["loc"]]
        if where:
            where[0] = names.get(where[0], where[0])
        prefix = f"{'.'.join(where)}: " if where else ""
        got = f" (got {item['input']!r})" if where else ""
        parts.append(f"{prefix}{item['msg']}{got}")
    return "; ".join(parts)


def _lies_in(outer: tuple[int | str, ...], inner: tuple[int | str, ...]) -> bool:
    return outer != inner and outer == inner[: len(outer)]


__all__ = ["Field", "Params"]
