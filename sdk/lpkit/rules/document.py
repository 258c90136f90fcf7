"""Documents: rules as JSON, a list of steps in order.

A step is an object: ``rule`` names one of :data:`RULES`, ``when`` (see :mod:`lpkit.rules.when`) limits it to some
positions, and the other keys are the rule's parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import lpkit
from lpkit._nearest import suggest
from lpkit.history.rows import HistoryUse
from lpkit.portable.words import word_fields
from lpkit.rules.allowed_tokens import AllowedTokens
from lpkit.rules.ban import Ban
from lpkit.rules.characters import Characters
from lpkit.rules.choose import Choose
from lpkit.rules.dry import Dry
from lpkit.rules.end import End
from lpkit.rules.forced_sequence import ForcedSequence
from lpkit.rules.logit_bias import LogitBias
from lpkit.rules.loop_breaker import LoopBreaker
from lpkit.rules.min_p import MinP
from lpkit.rules.no_repeat_ngram import NoRepeatNgram
from lpkit.rules.penalties import Penalties
from lpkit.rules.temperature import Temperature
from lpkit.rules.thinking_budget import ThinkingBudget
from lpkit.rules.top_n_sigma import TopNSigma
from lpkit.rules.truncation import Truncation
from lpkit.rules.when import KEYS, lane_class
from lpkit.rules.xtc import Xtc
from lpkit.vocabulary.forms import in_order

VERSION = 1
"""Version of the document format."""


class DocumentRule(NamedTuple):
    """A rule of documents.

    Attributes:
        processor: the rule's class.
        fixed: parameters that the name of the rule implies.
        says: what it does, if its class does more.
    """

    processor: type[lpkit.LogitsProcessor]
    fixed: Mapping[str, Any] = {}
    says: str = ""

    @property
    def does(self) -> str:
        """A sentence about the rule."""
        return self.says or " ".join((self.processor.__doc__ or "").split())

    @property
    def params(self) -> type[lpkit.Params]:
        """The rule's parameters."""
        assert self.processor.Params is not None
        return self.processor.Params

    @property
    def keys(self) -> tuple[str, ...]:
        """The parameters that a step may give."""
        return tuple(key for key in self.params.keys() if key not in self.fixed)  # noqa: SIM118


_TRUNCATIONS = {
    "epsilon": "Mask tokens less likely than `threshold`.",
    "eta": "Mask tokens less likely than both `threshold` and its root times exp(-entropy).",
    "top_a": "Mask tokens less likely than `threshold` times the square of the highest probability.",
    "typical": "Keep the tokens whose surprise is nearest to the entropy, until they have the probability `threshold`.",
    "tail_free": "Cut off the tail where the curvature of the sorted probabilities has summed up to `threshold`.",
}

RULES: dict[str, DocumentRule] = {
    "bias": DocumentRule(LogitBias),
    "penalties": DocumentRule(Penalties),
    "dry": DocumentRule(Dry),
    "no_repeat_ngram": DocumentRule(NoRepeatNgram),
    "loop": DocumentRule(LoopBreaker),
    "temperature": DocumentRule(Temperature),
    "top_n_sigma": DocumentRule(TopNSigma),
    "min_p": DocumentRule(MinP),
    **{rule: DocumentRule(Truncation, {"rule": rule}, says) for rule, says in _TRUNCATIONS.items()},
    "xtc": DocumentRule(Xtc),
    "ban": DocumentRule(Ban),
    "allow": DocumentRule(AllowedTokens),
    "characters": DocumentRule(Characters),
    "end": DocumentRule(End),
    "thinking_budget": DocumentRule(ThinkingBudget),
    "choose": DocumentRule(Choose),
    "force": DocumentRule(ForcedSequence),
}
"""Rules by their names in documents."""


@dataclass(frozen=True)
class DocumentStep:
    """A step of a document.

    Attributes:
        place: JSON pointer to it; of an operator's step, with the part of the file before it (``last/0``).
        reads: part of the history that its condition reads.
        args: parameters for :func:`lpkit.rules.when.lane_class`'s class.
    """

    rule: str
    place: str
    reads: HistoryUse
    args: Mapping[str, Any]

    @property
    def lane(self) -> type[lpkit.LogitsProcessor]:
        """The class that runs the step."""
        return lane_class(RULES[self.rule].processor, self.reads)


class DocumentError(ValueError):
    """A document is wrong; the message begins with a JSON pointer to the mistake."""


def steps_of(document: list[Any], rules: Iterable[str] = RULES, part: str = "") -> tuple[DocumentStep, ...]:
    """Read and check a document.

    Args:
        document: the steps.
        rules: names of the rules that steps may use.
        part: part of the operator's file that holds the document; "" for one of a request.

    Returns:
        The steps, in order.

    Raises:
        DocumentError: the document is wrong; the message begins with ``part`` and the pointer.
    """
    return tuple(_step(f"{part}/{number}", item, tuple(rules)) for number, item in enumerate(document))


def _step(where: str, given: Any, rules: tuple[str, ...]) -> DocumentStep:
    if not isinstance(given, dict):
        raise DocumentError(f"{where}: a step is an object, not {type(given).__name__}")
    args = dict(given)
    name = args.pop("rule", None)
    if not isinstance(name, str) or name not in rules:
        shown = repr(name)[:100]
        raise DocumentError(f"{where}/rule: {shown} is no rule here; {suggest(shown[1:-1], rules)}")
    rule = RULES[name]
    condition = args.pop("when", {})
    if not isinstance(condition, dict):
        raise DocumentError(f"{where}/when: an object is needed, not {type(condition).__name__}")
    _refuse_unknown(f"{where}/when", condition, KEYS)
    condition = {key: value for key, value in condition.items() if value is not None and value != []}
    _refuse_unknown(where, args, (*rule.keys, "when"))
    reads: HistoryUse = "none"
    if condition:
        reads = "tokens" if condition.keys() & {"after", "before", "during"} else "length"
    args = {key: value for key, value in args.items() if value is not None}
    args = {**args, **rule.fixed, **{f"when_{key}": value for key, value in condition.items()}}
    for key in _markers(rule.processor):
        if isinstance(args.get(key), str | int):
            args[key] = [args[key]]
    args["step"] = where
    step = DocumentStep(name, where, reads, args)
    missing = [key for key, field in rule.params.keys().items() if rule.params.model_fields[field].is_required()]
    missing = [key for key in missing if args.get(key) is None]
    if missing:
        raise DocumentError(f"{where}: {name} needs {', '.join(missing)}")
    assert step.lane.Params is not None
    try:
        step.lane.Params.parse(args)
    except ValueError as error:
        place, _, reason = str(error).partition(": ")
        if place.partition(".")[0] not in args:
            raise DocumentError(f"{where}: {error}") from None
        raise DocumentError(f"{where}/{place.replace('when_', 'when/', 1).replace('.', '/')}: {reason}") from None
    return step


@cache
def _markers(processor: type[lpkit.LogitsProcessor]) -> list[str]:
    """Return the parameters of a step that are tokens in order: a single token needs no list."""
    params = lane_class(processor, "tokens").Params
    assert params is not None
    return [field.key for field in word_fields(params, params.keys()) if field.find is in_order]


def _refuse_unknown(where: str, given: Mapping[str, Any], allowed: Iterable[str]) -> None:
    for key in given:
        if key not in allowed:
            raise DocumentError(f"{where}/{key[:100]}: unknown; {suggest(key[:100], allowed)}")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of documents."""
    when = {key.removeprefix("when_"): value for key, value in _properties(lane_class(MinP, "tokens")).items()}
    steps = []
    for name, rule in RULES.items():
        given = _properties(rule.processor)
        markers = _markers(rule.processor)
        properties = {key: _or_one(given[key]) if key in markers else given[key] for key in rule.keys}
        required = [key for key in rule.keys if rule.params.model_fields[rule.params.keys()[key]].is_required()]
        steps.append(
            {
                "title": name,
                "description": rule.does,
                "type": "object",
                "properties": {"rule": {"const": name}, **properties, "when": {"$ref": "#/$defs/when"}},
                "required": ["rule", *required],
                "additionalProperties": False,
            }
        )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"lpkit rules, version {VERSION}",
        "oneOf": [
            {"type": "array", "items": {"oneOf": steps}},
            {
                "type": "object",
                "properties": {"preset": {"type": "object", "description": "parameters of llama.cpp or koboldcpp"}},
                "required": ["preset"],
                "additionalProperties": False,
            },
            {"type": "string", "description": "the name of one of the operator's documents"},
        ],
        "$defs": {
            "set": {
                "type": "object",
                "properties": {"set": {"type": "string", "description": "the name of one of the operator's sets"}},
                "required": ["set"],
                "additionalProperties": False,
            },
            "when": {
                "type": "object",
                "properties": {key: _or_one(when[key]) for key in KEYS},
                "additionalProperties": False,
            },
        },
    }


def _properties(processor: type[lpkit.LogitsProcessor]) -> dict[str, Any]:
    assert processor.Params is not None
    properties: dict[str, Any] = processor.Params.model_json_schema()["properties"]
    for field in properties.values():
        if field.get("type") == "array" and "items" in field:
            field["items"] = {"anyOf": [field["items"], {"$ref": "#/$defs/set"}]}
    return properties


def _or_one(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a marker, which may be one word or token id without a list."""
    return {"anyOf": [field, *field["items"]["anyOf"][:1]]} if field.get("type") == "array" else field
