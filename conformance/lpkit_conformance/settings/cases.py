"""Cases: how to switch a plugin on, and the requests that the programs make of them."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, islice
from typing import Any

from lpkit._nearest import did_you_mean
from lpkit.interfaces import lookup
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.errors import CaseError
from lpkit_conformance.vllm_api.tokenizer import WORDS, leaves

OWN_KEYS = ("prompt_token_ids", "output_token_ids")
GENERATED = "generated"
REASONING = "reasoning"
MARKERS = ("start", "end", "natural_end")

MOST_GENERATED = 320
"""Most output tokens that a request may bring; the longest programs and traces have to fit as well."""

VARIANTS = 4
"""Number of requests with different arguments that a case gives; equal requests would hide a swap."""

CLOSE = 1.02
"""Times the case's number: one that is rounded to a tenth may be equal then."""

MOST_NEIGHBOURS = 10
"""Relatives that differ in one thing."""

MOST_OTHERS = 3
"""Other flags, texts or keys in one position of an argument."""

FEW_ITEMS = 8
"""Items of a long list that a relative has: what stands behind them in a table is reached by short programs."""

RARE: dict[str, Any] = {
    "presence_penalty": 0.6,
    "frequency_penalty": 0.4,
    "repetition_penalty": 1.2,
    "min_p": 0.05,
    "logit_bias": {"9": 1.5},
    "logprobs": 2,
    "skip_special_tokens": False,
}
"""Fields of vLLM's that requests have for a class that reads them, with a value that is not the default."""

ALONE: dict[str, Any] = {**RARE, "seed": 1001, "temperature": 0.6, "top_p": 0.8, "top_k": 50}
"""Fields in which alone a relative differs, for a class that reads them."""

STANDARD = ("max_tokens", "min_tokens", "seed", "stop_token_ids", "temperature", "top_p", "top_k", "ignore_eos", *RARE)
"""Fields of vLLM's that differ between the relatives of a case that gives them."""


Words = Callable[[], Iterable[str]]
"""Returns texts that an argument may be; called only if other letters are refused."""

Foreign = tuple[Mapping[str, Any] | None, ...]

FOREIGN_ARGS: Foreign = (
    None,
    {},
    {"kv_transfer_params": {"do_remote_decode": False}},
    {"other_plugin_key": 1},
)
"""``extra_args`` without any of the plugin's keys."""


@dataclass(frozen=True)
class Case:
    """SamplingParams fields that make the plugin act, e.g. ``{"extra_args": {"target_token": 67}}``.

    Attributes:
        fields: keyword arguments of ``SamplingParams``.
        prompt_token_ids: the last tokens of its requests' prompts.
        output_token_ids: tokens that the simulated model emits repeatedly, among others.
        generated: number of tokens that its requests have generated when they arrive, as after a preemption: for a
            plugin that acts late.
        reasoning: token ids of the markers ``start``, ``end`` and ``natural_end`` of a thought, as in the engine's
            ``reasoning_config``; empty: the engine has none.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    prompt_token_ids: tuple[int, ...] = ()
    output_token_ids: tuple[int, ...] = ()
    generated: int = 0
    reasoning: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: object) -> Case:
        """Inverse of :meth:`to_json`. Raises CaseError."""
        return cls.parse(data)

    @classmethod
    def parse(cls, value: object, complete: bool | None = None) -> Case:
        """Read a case.

        Args:
            value: a JSON text or a mapping.
            complete: False leaves the fields to a process that has vLLM's class; None: if this process lacks it.

        Raises:
            CaseError: naming the unknown key with its nearest match, or the value that does not fit.
        """
        complete = not lookup.left_out() if complete is None else complete
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise CaseError(f'case is not JSON: {error}; example: {{"extra_args": {{"my_key": 1}}}}') from None
        if not isinstance(value, Mapping):
            raise CaseError(f"a case is a JSON object of SamplingParams fields, not {type(value).__name__}")
        keys = {*_field_names(), *OWN_KEYS, GENERATED, REASONING}
        for key in value:
            if complete and key not in keys:
                remedy = f'{did_you_mean(str(key), keys)} Arguments of plugins go under "extra_args"'
                raise CaseError(f"case has an unknown key {key!r}", remedy.strip())
        fields = {key: item for key, item in value.items() if key not in (*OWN_KEYS, GENERATED, REASONING)}
        extra = fields.get("extra_args")
        if extra is not None and not isinstance(extra, Mapping):
            raise CaseError(f"extra_args must be an object, not {type(extra).__name__}")
        if extra is not None:
            with contextlib.suppress(TypeError, ValueError, RecursionError):  # what is no JSON stays as it is
                fields["extra_args"] = json.loads(json.dumps(dict(extra)))  # as a client sends it: lists, keys of text
        generated = value.get(GENERATED, 0)
        if type(generated) is not int or not 0 <= generated <= MOST_GENERATED:
            raise CaseError(f"{GENERATED} must be a number of tokens up to {MOST_GENERATED}, not {generated!r}")
        prompt, output = (_ids(key, value.get(key, ())) for key in OWN_KEYS)
        case = cls(fields, prompt, output, generated, _markers(value.get(REASONING, {})))
        if not complete:
            return case
        try:
            case.params()
        except Exception as error:
            raise CaseError(f"SamplingParams refuses the case {case.text}: {error}") from None
        return case

    @property
    def text(self) -> str:
        """The case as JSON."""
        extras = {key: getattr(self, key) for key in (*OWN_KEYS, GENERATED, REASONING)}
        return json.dumps({**self.fields, **{key: value for key, value in extras.items() if value}}, default=str)

    def to_json(self) -> dict[str, Any]:
        """The case as JSON values, which :meth:`parse` reads."""
        values: dict[str, Any] = json.loads(self.text)
        return values

    def params(self, **overrides: Any) -> SamplingParams:
        """Return fresh ``SamplingParams``; nothing is shared with the case.

        Args:
            **overrides: fields that replace those of the case.
        """
        return make_params({**copy.deepcopy(self.fields), **overrides})

    def token_ids(self) -> tuple[int, ...]:
        """Ints in the case that may be token ids; the source makes them likely."""
        ids = {item for item in leaves(self.fields.get("extra_args")) if type(item) is int}
        return tuple(sorted(ids.union(self.prompt_token_ids, self.output_token_ids, *self.reasoning.values())))


@dataclass(frozen=True)
class Requests:
    """The requests that checks send.

    Attributes:
        cases: arguments that switch the plugin on.
        foreign: ``extra_args`` of other processors, which all requests carry.
        without: kinds of requests that are left out, as the plugin refuses them or raises for them.
        longest: the most output tokens of a request, as the plugin raises for more; None: any number.
    """

    cases: tuple[Case, ...]
    foreign: Foreign = FOREIGN_ARGS
    without: tuple[str, ...] = ()
    longest: int | None = None


def _markers(value: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, Mapping):
        raise CaseError(f"{REASONING} must be an object of token ids by {', '.join(MARKERS)}, not {value!r}")
    for name in value:
        if name not in MARKERS:
            raise CaseError(f"{REASONING} has an unknown key {name!r}", did_you_mean(str(name), MARKERS).strip())
    markers = {str(name): _ids(f"{REASONING}.{name}", ids) for name, ids in value.items()}
    if markers and not (markers.get("start") and markers.get("end")):
        raise CaseError(f"{REASONING} needs start and end, token ids that open and close a thought")
    return markers


def make_params(fields: Mapping[str, Any]) -> SamplingParams:
    """Return fresh ``SamplingParams`` with these keyword arguments."""
    fields = dict(fields)
    if fields.get("logit_bias") is not None:
        # As `SamplingParams.from_optional` of vLLM makes it: JSON has no keys but strings.
        fields["logit_bias"] = {int(i): min(100.0, max(-100.0, bias)) for i, bias in fields["logit_bias"].items()}
    return SamplingParams(**fields)


class WatchedArgs(dict[str, Any]):
    """``extra_args`` that note which keys a plugin reads."""

    def __init__(self, args: Mapping[str, Any], looked_at: set[str]) -> None:
        super().__init__(args)
        self._looked_at = looked_at

    def get(self, key: str, default: Any = None) -> Any:
        self._looked_at.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._looked_at.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._looked_at.add(str(key))
        return super().__contains__(key)

    def __deepcopy__(self, memo: dict[int, Any]) -> WatchedArgs:
        return WatchedArgs(copy.deepcopy(dict(self), memo), self._looked_at)

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


def variants(
    case: Case, accepts: Callable[[SamplingParams], bool], vocab_size: int, words: Words = tuple
) -> list[Case]:
    """Return the case and up to three relatives with other numbers, so that two neighbours are never interchangeable.

    The last has another flag, text or key as well, and without another number, all have. Up to four cases with fewer
    arguments follow, for the checks that try every combination of requests in one position.
    """
    relatives, extra = [case], case.fields.get("extra_args")
    usual = {name: case.fields[name] for name in STANDARD if case.fields.get(name)}
    flags = {key: value for key, value in (extra or {}).items() if type(value) is int and value in (0, 1)}
    for step in (1, 2, 3):
        shifted = {"extra_args": _shift(extra, step, vocab_size)} if extra else _shift(case.fields, step, vocab_size)
        kept = {"extra_args": {**shifted["extra_args"], **flags}} if flags else shifted
        standard = _shift(usual, step, vocab_size)
        for fields in ({**shifted, **standard}, shifted, {**kept, **standard}, kept):
            relative = replace(case, fields={**case.fields, **fields})
            if relative not in relatives and _usable(relative, accepts):
                relatives.append(relative)
                break
    if relatives == [case]:
        relatives += _otherwise(case, accepts, words)
    else:
        relatives[-1] = _in_another_mode(relatives[-1], accepts, words)
    return [*relatives[:VARIANTS], *_shorter(case, accepts, vocab_size)]


def neighbours(
    case: Case,
    accepts: Callable[[SamplingParams], bool],
    vocab_size: int,
    words: Words = tuple,
    fields: Iterable[str] = (),
) -> list[Case]:
    """Return relatives that differ from the case in an argument, or in the order, an item or the length of a list.

    Flags, texts and keys of objects differ, too. The numbers of the first are close to the case's: they may be rounded.
    The last differ in one of these ``fields`` of vLLM's.
    """
    extra = case.fields.get("extra_args") or {}
    shifted = _shift(extra, 1, vocab_size)
    changes = [{key: shifted[key]} for key in extra] if len(extra) > 1 else []
    for key, value in extra.items():
        if isinstance(value, dict) and len(value) > 1:
            changes += [{key: {**value, inner: shifted[key][inner]}} for inner in value]
        if isinstance(value, list) and any(isinstance(item, list) and len(item) > 1 for item in value):
            changes.append({key: [item[::-1] if isinstance(item, list) else item for item in value]})
        if isinstance(value, list) and value:
            changes += [{key: value[::-1]}, {key: [*value, shifted[key][0]]}]
        if isinstance(value, list) and len(value) > 1:
            if all(type(item) is int for item in value):  # with the same sum, and with the same digits
                changes.append({key: [value[0] + 1, *value[1:-1], value[-1] - 1]})
                changes.append({key: _same_digits(value, vocab_size)})
            if len(value) > 2:
                changes.append({key: [value[0], *shifted[key][1:-1], value[-1]]})
                changes.append({key: [*value[:-1], shifted[key][-1]]})
    close = _changed(extra, lambda item, _: _scaled(item, CLOSE) if isinstance(item, float) else item)
    numbers = _with_arguments(case, [close, *({**extra, **change} for change in changes[:MOST_NEIGHBOURS])], accepts)
    in_fields = [replace(case, fields={**case.fields, name: ALONE[name]}) for name in fields]
    usable = [relative for relative in in_fields if relative != case and _usable(relative, accepts)]
    return [*numbers, *_otherwise(case, accepts, words), *usable]


def _otherwise(case: Case, accepts: Callable[[SamplingParams], bool], words: Words) -> list[Case]:
    """Return relatives that differ from the case in a flag, in a text, or in a key of an object."""
    extra = case.fields.get("extra_args") or {}

    others = (
        {**extra, key: other}
        for key in extra
        for other in _others(extra[key], partial(_accepted_with, case, key, accepts), words)
    )
    return _with_arguments(case, [*islice(others, MOST_NEIGHBOURS)], accepts)


def _accepted_with(case: Case, key: str, accepts: Callable[[SamplingParams], bool], value: Any) -> bool:
    """Return True if the case is accepted with another value of an argument."""
    extra = case.fields.get("extra_args") or {}
    return _usable(replace(case, fields={**case.fields, "extra_args": {**extra, key: value}}), accepts)


def _in_another_mode(case: Case, accepts: Callable[[SamplingParams], bool], words: Words) -> Case:
    """Return the relative that differs from the case in each of its flags and texts, as far as it is accepted."""
    for key, value in (case.fields.get("extra_args") or {}).items():
        if isinstance(value, int | str):
            args = case.fields["extra_args"]
            others = (
                replace(case, fields={**case.fields, "extra_args": {**args, key: other}})
                for other in _others(value, partial(_accepted_with, case, key, accepts), words)
            )
            case = next(others, case)
    return case


def _others(value: Any, accepts: Callable[[Any], bool], words: Words) -> Iterator[Any]:
    """Yield accepted values with another flag, text or key in one position."""
    tried: Iterable[Any] = ()
    places: list[Any] = []
    if isinstance(value, int) and value in (0, 1):  # also a flag, as servers pass it on
        tried = [type(value)(not value)]
    elif isinstance(value, str):
        tried = chain([value.swapcase(), _other_letter(value), value + value[:1]], words())
    elif isinstance(value, Mapping):
        places = [*value]
        renamed = ((key, _other_letter(key)) for key in places)
        tried = [
            {new if name == key else name: value[name] for name in value} for key, new in renamed if new not in value
        ]
    elif isinstance(value, list):
        places = [*range(len(value))][:1]
    yield from islice((other for other in tried if other != value and accepts(other)), MOST_OTHERS)
    for place in places:
        others = _others(value[place], partial(accepted_at, value, place, accepts), words)
        yield from (replaced(value, place, other) for other in others)


def _other_letter(text: str) -> str:
    """Return the text with another last letter or digit."""
    at = max((n for n, letter in enumerate(text) if letter.isalnum()), default=-1)
    return text if at < 0 else text[:at] + chr(ord(text[at]) + (1 if text[at] in "0Aa" else -1)) + text[at + 1 :]


def replaced(value: Any, place: Any, item: Any) -> Any:
    """Return a list or an object with another item in one position."""
    if isinstance(value, Mapping):
        return {**value, place: item}
    return [*value[:place], item, *value[place + 1 :]]


def accepted_at(value: Any, place: Any, accepts: Callable[[Any], bool], item: Any) -> bool:
    """Return True if a list or an object is accepted with another item in one position."""
    return accepts(replaced(value, place, item))


def _same_digits(ids: Sequence[int], vocab_size: int) -> list[int]:
    """Return other ids with the same digits in a row: a key made by joining them is the same."""
    digits = "".join(map(str, ids[:2]))
    for cut in range(len(digits), 0, -1) if min(ids) >= 0 else ():
        parts = [part for part in (digits[:cut], digits[cut:]) if part]
        others = [*map(int, parts), *ids[2:]]
        if others != list(ids) and [*map(str, others[: len(parts)])] == parts and max(others) < vocab_size:
            return others
    return [*ids]


def distinct(
    case: Case, accepts: Callable[[SamplingParams], bool], vocab_size: int, numbers: Iterable[int]
) -> list[Case]:
    """Return relatives of a case with arguments close to its own, all different; a number has at most one relative."""
    relatives = []
    for number in numbers:
        for sign in (-1, 1):
            extra = case.fields.get("extra_args")
            moved = _move(extra or case.fields, sign * number, vocab_size)
            fields = {**case.fields, "extra_args": moved} if extra else moved
            relative = Case(fields, case.prompt_token_ids, case.output_token_ids)
            if fields != case.fields and _usable(relative, accepts):
                relatives.append(relative)
                break
    return relatives


def _usable(case: Case, accepts: Callable[[SamplingParams], bool]) -> bool:
    try:
        return accepts(case.params())
    except Exception:  # SamplingParams refuses what does not fit together
        return False


def _changed(value: Any, change: Callable[[Any, int], Any], nth: int = 0) -> Any:
    """Return arguments with each number and text changed; ``change`` also gets its index in its list or object."""
    if isinstance(value, Mapping):
        return {key: _changed(item, change, n) for n, (key, item) in enumerate(value.items())}
    if isinstance(value, list | tuple):
        return [_changed(item, change, n) for n, item in enumerate(value)]
    return value if isinstance(value, bool) or value is None else change(value, nth)


def _move(value: Any, by: int, vocab_size: int) -> Any:
    """Token ids go round the vocabulary, words become others, other numbers stay nearly what they are.

    With each round the ids of a list, and the numbers of an object, are further apart: what they make together does not
    recur.
    """

    def moved(item: Any, nth: int) -> Any:
        if isinstance(item, int):
            far = by + nth * int(by / vocab_size)
            return (item + far) % vocab_size if 0 <= item < vocab_size else item + by
        return _scaled(item, 1 + by * 1e-4) if isinstance(item, float) else _other_word(item, by)

    return _changed(value, moved)


def _shorter(case: Case, accepts: Callable[[SamplingParams], bool], vocab_size: int) -> list[Case]:
    """Relatives with an argument less, or fewer items in a list: what they lack must not come from someone else.

    The items are others: a table that holds the beginning of the case's list holds the case's.
    """
    extra = case.fields.get("extra_args") or {}
    shifted = _shift(extra, 1, vocab_size)
    less: list[dict[str, Any]] = []
    for key, value in extra.items():
        if len(extra) > 1:
            less.append({name: item for name, item in extra.items() if name != key})
        if isinstance(value, list) and len(value) > 1:
            lengths = dict.fromkeys((len(value) - 1, min(len(value) - 1, FEW_ITEMS)))
            less += [{**extra, key: shifted[key][:length]} for length in lengths]
    return _with_arguments(case, less[:VARIANTS], accepts)


def _with_arguments(
    case: Case, arguments: Sequence[Mapping[str, Any]], accepts: Callable[[SamplingParams], bool]
) -> list[Case]:
    """Return the different relatives of a case with these ``extra_args`` that the plugin accepts."""
    relatives: list[Case] = []
    for extra in arguments:
        relative = replace(case, fields={**case.fields, "extra_args": extra})
        if relative not in (case, *relatives) and _usable(relative, accepts):
            relatives.append(relative)
    return relatives


def _shift(value: Any, step: int, vocab_size: int) -> Any:
    """Token ids stay in the vocabulary, words become others, other numbers become clearly different."""

    def shifted(item: Any, nth: int) -> Any:
        if isinstance(item, int):
            return item + step if item + step < vocab_size or item >= vocab_size else item - step
        if isinstance(item, float):
            return _scaled(item, 1 - 0.11 * step) if item else 0.25 * step  # 0 may switch the rule off
        return _other_word(item, step)

    return _changed(value, shifted)


def _scaled(number: float, factor: float) -> float:
    """Return the product with ten digits: a report shows 1.34, and not 1.3399999999999999."""
    return float(f"{number * factor:.10g}")


def _other_word(text: Any, step: int) -> Any:
    """Another of the words that the tokenizer always knows; anything else stays."""
    word = text.strip() if isinstance(text, str) else ""
    return text.replace(word, WORDS[(WORDS.index(word) + step) % len(WORDS)]) if word in WORDS else text


def _ids(key: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(item) is int and item >= 0 for item in value):
        raise CaseError(f"{key} must be a list of token ids, not {value!r}")
    return tuple(value)


def knows_field(name: str) -> bool:
    """True if this ``SamplingParams`` has a field."""
    return name in _field_names()


@cache
def _field_names() -> frozenset[str]:
    fields: Any = getattr(SamplingParams, "__struct_fields__", None)  # vLLM's is a msgspec Struct
    if fields is None:
        fields = getattr(SamplingParams, "__dataclass_fields__", {})
    return frozenset(name for name in fields if not name.startswith("_"))
