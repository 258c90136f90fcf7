"""Typed per-request parameters, read from ``SamplingParams.extra_args`` (``vllm_xargs`` over HTTP)."""

from __future__ import annotations

import math
import reprlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

import pydantic
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json

from lpkit._nearest import suggest
from lpkit.portable.token_ids import INT64_MAX, INT64_MIN, check_ids, is_token_id, known_vocabulary
from lpkit.portable.words import check_word_fields, unwrapped

Self = TypeVar("Self", bound="Params")


class Params(BaseModel):
    """Base for a processor's parameters; each field is one key of ``SamplingParams.extra_args``.

    ``class Params(lpkit.Params, prefix="mine_")`` puts ``mine_`` before every key. A key with that prefix that is not a
    field is refused, with the nearest match. Keys of other plugins are ignored.

    A field without a default is required. A request that gives none of the fields does not use the processor. Over
    HTTP, values pass through JSON and msgpack, so they must be JSON values. Bools and lists of bools accept 0 and 1, an
    int field refuses bools, ints fit in 64 bits, and floats are finite. A float that float32 would hold as infinity or
    less precisely than usual, such as 1e300 and 5e-324, is refused. A processor that does not override ``admit`` also
    refuses what the column of a field's name does not hold: more items than its limit, or a number beyond its type.
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
        """Override to refuse combinations of fields: raise ``ValueError``, naming the keys."""

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Return the keys of ``extra_args`` that the processor reads.

        Returns:
            The field's name for each key.
        """
        return {field.alias or cls.lpkit_prefix + name: name for name, field in cls.model_fields.items()}

    @classmethod
    def token_id_fields(cls) -> tuple[str, ...]:
        """Return the fields that hold token ids, which are checked against the model's vocabulary.

        Returns:
            The names of fields declared as :data:`TokenId` or a collection of it.
        """
        names = []
        for name, field in cls.model_fields.items():
            if is_token_id(field.annotation, field.json_schema_extra, field.metadata):
                names.append(name)
        return tuple(names)

    @classmethod
    def parse(cls: type[Self], extra_args: Mapping[str, Any] | None) -> Self | None:
        """Read and validate the parameters of one request.

        Args:
            extra_args: of the request. A value of None counts as not given.

        Returns:
            The parameters, or None if the request gives none of the required keys and so does not use this processor.

        Raises:
            ValueError: a parameter is wrong; the message names its key, its value and the broken rule.
        """
        extra_args = extra_args or {}
        # The engine waits while a request is admitted, and the same values come again and again.
        facts = _facts_of(cls)
        number = None
        if len(extra_args) == 1:  # a number, the usual case: its type and value identify it
            ((key, value),) = extra_args.items()
            kind = type(value)
            if kind in _NUMBERS:
                number = (key, kind, value or repr(value))  # 0.0 equals -0.0
                params: Self | None = facts.memo.get(number)
                if params is not None:
                    return params
        params = cls._read(facts, extra_args)
        if number is not None and params is not None:
            facts.remember(number, params)
        return params

    @classmethod
    def _read(cls: type[Self], facts: _ParsingFacts, extra_args: Mapping[str, Any]) -> Self | None:
        given = {key: extra_args[key] for key in facts.inputs if extra_args.get(key) is not None}
        prefix = cls.lpkit_prefix
        if prefix and len(given) < len(extra_args):
            for key in extra_args:
                if key not in facts.inputs and isinstance(key, str) and key.startswith(prefix):
                    raise ValueError(f"unknown parameter {_shown(key)}; {suggest(key[:_LONGEST_SHOWN], facts.inputs)}")
        if not facts.required <= given.keys():
            if not given:
                return None
            missing = [key for key in facts.inputs if key in facts.required and key not in given]
            raise ValueError(f"{', '.join(sorted(given))} given without {', '.join(missing)}")
        for key, value in given.items():
            _refuse_long(key, value, facts.inputs[key].most)
        try:
            # JSON distinguishes values as validation does: 1, 1.0 and true; 0.0 and -0.0.
            text = to_json(given, inf_nan_mode="constants")
            params: Self | None = facts.memo.get(text)
            if params is not None:
                return params
            plain = from_json(text, allow_inf_nan=True)
        except (ValueError, TypeError):
            raise _not_json(given) from None
        if len(text) > _MOST_BYTES:
            raise ValueError(
                f"{', '.join(given)}: {len(text)} bytes of JSON, more than the {_MOST_BYTES} that are read"
            )
        params = cls._validated(plain, facts)
        if len(text) <= _LONGEST:
            facts.remember(text, params)
        return params

    @classmethod
    def _validated(cls: type[Self], given: Mapping[str, Any], facts: _ParsingFacts) -> Self:
        inputs = facts.inputs
        values = {inputs[key].name: _checked(key, value, inputs[key].bools) for key, value in given.items()}
        try:
            # Strict mode reads JSON as the REST layer sends it: a list may fill a tuple, True is not an int.
            params = cls.model_validate_json(to_json(values), strict=True)
        except pydantic.ValidationError as error:
            if error.error_count() > _MOST_ERRORS:
                raise ValueError(cls._first_mistakes(values, error.error_count())) from None
            raise ValueError(_explain(error, cls)) from None
        params.check_together()
        for size in known_vocabulary:
            for key in facts.token_ids.keys() & given.keys():
                check_ids(key, getattr(params, facts.token_ids[key]), size)
        return params

    @classmethod
    def _first_mistakes(cls, values: Mapping[str, Any], count: int) -> str:
        try:
            cls.model_validate_json(to_json(_head(values)), strict=True)
        except pydantic.ValidationError as error:
            return f"{count} values are wrong: {_explain(error, cls)}"
        return f"{count} values of {', '.join(values)} are wrong"


FLOAT32_MIN, FLOAT32_MAX = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""The smallest normal number of float32, and the largest."""

_NUMBERS = frozenset({bool, int, float})
_REMEMBERED = 256
_LONGEST = 4096
"""Longest JSON, in bytes, whose parameters are remembered."""


_MOST_ITEMS = 2**19
"""Most items of a list: more than any vocabulary has. The server waits while it reads them."""

_DEEPEST = 8
"""Levels of lists whose items are counted beyond the declared ones."""

_LISTS = frozenset({list, tuple, dict})

_MOST_BYTES = 2**24
"""Longest JSON that is read."""

_MOST_ERRORS = 100
"""Most mistakes that are looked at one by one."""

_MOST_SHOWN = 10
_LONGEST_SHOWN = 100
_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _LONGEST_SHOWN


def _cut(name: object, most: int = _LONGEST_SHOWN) -> str:
    """Return a name as text, without its middle if it is long."""
    text = str(name)
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 2 :]}"


def _shown(value: object) -> str:
    """Return a value as text; a long value would be repeated in the answer and in the log."""
    return _cut(_SHORT.repr(value), 4 * _LONGEST_SHOWN)


Bools = Literal["none", "one", "many"]
"""Kind of parameter: a bool, a list of bools, or neither."""


class _Input(typing.NamedTuple):
    """The field that a key of ``extra_args`` fills."""

    name: str  # as pydantic takes it
    bools: Bools
    most: tuple[int, ...]  # items, then those of inner lists


@dataclass(slots=True)
class _ParsingFacts:
    """Facts about a class of parameters that parsing needs; pydantic's own tables are slow to read."""

    inputs: dict[str, _Input]  # by key
    required: frozenset[str]
    token_ids: dict[str, str]  # fields of token ids by key
    memo: dict[bytes | tuple[Any, ...], Any]  # earlier results, by JSON or by number

    def remember(self, given: bytes | tuple[Any, ...], params: Params) -> None:
        try:
            hash(params)
        except TypeError:
            return  # it holds a list or the like, which another request's processor could change
        if len(self.memo) >= _REMEMBERED:
            self.memo.clear()
        self.memo[given] = params


@cache
def _facts_of(cls: type[Params]) -> _ParsingFacts:
    fields, keys = cls.model_fields, cls.keys()
    inputs = {
        key: _Input(
            fields[name].alias or name,
            _bools(fields[name].annotation),
            tuple(_most(fields[name].annotation, fields[name].metadata)),
        )
        for key, name in keys.items()
    }
    required = frozenset(key for key, name in keys.items() if fields[name].is_required())
    ids = cls.token_id_fields()
    return _ParsingFacts(inputs, required, {key: name for key, name in keys.items() if name in ids}, {})


def _most(annotation: Any, metadata: Sequence[Any]) -> Iterator[int]:
    """Yield the most items that a declaration admits, then those of its inner lists.

    A set counts its items when it is made.
    """
    annotation, metadata = unwrapped(annotation, metadata)
    kind, parts = get_origin(annotation) or annotation, get_args(annotation)
    rules = [rule for item in metadata for rule in (item, *getattr(item, "metadata", ()))]
    lengths = [rule.max_length for rule in rules if getattr(rule, "max_length", None) is not None]
    yield _MOST_ITEMS if kind in (set, frozenset) else min(lengths, default=_MOST_ITEMS)
    if kind in (list, dict) and parts:
        yield from _most(parts[-1], ())


def _refuse_long(key: str, value: Any, most: Sequence[int]) -> None:
    """Refuse a value that is long, or has long lists, before it is read."""
    level, total = [(key, value)] if isinstance(value, list | tuple | dict | str) else [], 0
    for limit in chain(most, repeat(_MOST_ITEMS, _DEEPEST)):
        for where, items in level:
            if len(items) > limit:
                kind = "characters" if isinstance(items, str) else "items"
                raise ValueError(f"{where}: should have at most {limit} {kind}, not {len(items)} (got {_shown(items)})")
            total += len(items)
            if total > _MOST_ITEMS:
                raise ValueError(f"{key}: should have at most {_MOST_ITEMS} items, with those of its inner lists")
        level = [
            (f"{where}.{_cut(name)}", item)
            for where, items in level
            if not _LISTS.isdisjoint(map(type, items.values() if isinstance(items, dict) else items))
            for name, item in (items.items() if isinstance(items, dict) else enumerate(items))
            if type(item) in _LISTS
        ]
        if not level:
            return


def _head(value: Any) -> Any:
    """Return a value with the first items of its lists."""
    if isinstance(value, dict):
        return {key: _head(item) for key, item in value.items()}
    return [_head(item) for item in value[:_MOST_SHOWN]] if isinstance(value, list) else value


def _bools(annotation: Any) -> Bools:
    annotation, _ = unwrapped(annotation)
    if annotation is bool:
        return "one"
    elements = [part for part in get_args(annotation) if part is not Ellipsis]
    collection = get_origin(annotation) in (list, tuple, set, frozenset)
    return "many" if collection and all(unwrapped(part)[0] is bool for part in elements) else "none"


def _not_json(given: Mapping[str, Any]) -> ValueError:
    """Make the error that names the key whose value JSON cannot carry."""
    for key, value in given.items():
        try:
            from_json(to_json({key: value}, inf_nan_mode="constants"), allow_inf_nan=True)
        except (ValueError, TypeError) as error:
            return ValueError(f"{key}: {type(value).__name__} is not a JSON value ({error})")
    return ValueError(f"{', '.join(given)}: not JSON values")


def _checked(key: str, value: Any, bools: Bools) -> Any:
    """Check that columns can hold the numbers, and restore bools that the REST layer turned into numbers."""
    _refuse_wide(key, value)
    if bools == "one":
        return _as_bool(value)
    return [_as_bool(item) for item in value] if bools == "many" and isinstance(value, list) else value


def _as_bool(value: Any) -> Any:
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


def _refuse_wide(key: str, value: Any) -> None:
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError(f"{key}: {_shown(value)} does not fit in a signed 64-bit integer")
    elif isinstance(value, float):
        if value and math.isfinite(value) and not FLOAT32_MIN <= abs(value) <= FLOAT32_MAX:
            raise ValueError(f"{key}: {value} does not fit in float32 ({FLOAT32_MIN:.2g} to {FLOAT32_MAX:.2g})")
    elif isinstance(value, list | dict):
        for item in value if isinstance(value, list) else value.values():
            _refuse_wide(key, item)


def _explain(error: pydantic.ValidationError, cls: type[Params]) -> str:
    parts = []
    names = {name: key for key, name in cls.keys().items()}
    errors = error.errors(include_url=False)
    for item in errors:
        if item["type"] == "too_short" and any(_lies_in(item["loc"], other["loc"]) for other in errors):
            continue  # pydantic counts only valid items
        where = [*map(_cut, item["loc"])]
        if where:
            where[0] = names.get(where[0], where[0])
        prefix = f"{'.'.join(where)}: " if where else ""
        got = f" (got {_shown(item['input'])})" if where else ""
        parts.append(f"{prefix}{item['msg']}{got}")
    more = f"; and {len(parts) - _MOST_SHOWN} more" if len(parts) > _MOST_SHOWN else ""
    return "; ".join(parts[:_MOST_SHOWN]) + more


def _lies_in(outer: tuple[int | str, ...], inner: tuple[int | str, ...]) -> bool:
    return outer != inner and outer == inner[: len(outer)]


__all__ = ["Field", "Params"]
