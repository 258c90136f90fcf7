"""Cases derived from a plugin's declared parameters: for a run without any, and for hints."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lpkit.sampling_params import SamplingParams

from lpkit_conformance.instruments.author_lines import home_of, is_authors, syntax_of
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.vllm_api.tokenizer import WORDS, leaves

TOKENS = ((5, 9, 11), (7, 12, 8), (13, 10, 14))
"""Tokens for each parameter, all different: a marker that both starts and ends something does neither."""

REPEATED = (4, 5, 4, 5)
"""Tokens that requests repeat between the tokens of their arguments, for plugins that read their history."""

RANKS = 3
"""Number of values per parameter that are combined with the values of other parameters."""

MOST_CASES = 12

GUESSES: tuple[Any, ...] = (1, 0.5, True, 2.5, [5], [5, 9], "a", {"5": 1.0})
"""Values to try for an argument that is known by name only."""

MOST_GUESSED = 100

MOST_WRITTEN = 200
"""Texts in a file's code that are tried as an argument."""


def derived_cases(cls: Any, accepts: Callable[[SamplingParams], bool]) -> list[Case]:
    """Return cases that a class with declared ``Params`` accepts; empty for any other class.

    Some cases have every parameter, others the required parameters and one more. Numbers are in the middle and at the
    ends of their ranges and are combined with each other. Values differ from the defaults where possible.
    """
    declared = getattr(cls, "Params", None)
    if declared is None or not hasattr(declared, "model_json_schema") or not hasattr(declared, "keys"):
        return []
    schema = declared.model_json_schema()
    definitions = schema.get("$defs", {})
    required = set(schema.get("required", ()))
    values: dict[str, list[Any]] = {}
    needed = []
    for key, name in declared.keys().items():
        field = schema["properties"].get(declared.model_fields[name].alias or name, {})
        tokens = TOKENS[len(values) % len(TOKENS)]
        others = [value for value in _values(field, definitions, tokens) if value != field.get("default")]
        if others:
            values[key] = others
        if (declared.model_fields[name].alias or name) in required:
            needed.append(key)
    reads = getattr(cls, "history", "") == "tokens"
    cases: list[Case] = []
    for arguments in _arguments(values, needed):
        case = Case({"extra_args": arguments}, output_token_ids=_outputs(arguments) if reads else ())
        if case not in cases and accepts(case.params()):
            cases.append(case)
        if len(cases) == MOST_CASES:
            break
    return cases


def words_of(cls: Any) -> Iterator[str]:
    """Yield the texts of a class's declared parameters and of the code of its bases' files, that of the class first."""
    declared: Any = getattr(cls, "Params", None)
    if hasattr(declared, "model_json_schema"):
        yield from (leaf for leaf in leaves(declared.model_json_schema()) if isinstance(leaf, str))
    bases = [base for base in getattr(cls, "__mro__", ()) if is_authors(home_of(base))]
    names = [base.__name__ for base in bases]
    for file in dict.fromkeys(map(home_of, bases)):
        parts = sorted(syntax_of(file).body, key=lambda part: getattr(part, "name", "") not in names)
        nodes = itertools.chain.from_iterable(map(ast.walk, parts))
        written = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        yield from itertools.islice(written, MOST_WRITTEN)


def guessed_cases(keys: Sequence[str], types: Sequence[str] = ()) -> Iterator[Case]:
    """Yield cases with these arguments, and values of these types if given: equal values, then different ones."""
    fitting = [[v for v in GUESSES if not types or type(v).__name__ == types[nth]] for nth in range(len(keys))]
    equal = [(value,) * len(keys) for value in GUESSES if set(types) <= {type(value).__name__}]
    mixed = itertools.islice(itertools.product(*fitting), MOST_GUESSED)
    for each in (*equal, *mixed) if keys else ():
        yield Case({"extra_args": dict(zip(keys, each, strict=True))})


def _arguments(values: Mapping[str, list[Any]], needed: list[str]) -> Iterator[dict[str, Any]]:
    for pair in itertools.zip_longest(_complete(values), _sparing(values, needed)):
        yield from (arguments for arguments in pair if arguments is not None)


def _complete(values: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Every parameter: values of the same rank, then, as in a Latin square, each with the others of other ranks."""
    for turn, rank in itertools.product(range(RANKS), repeat=2):
        yield {key: choices[(rank + turn * nth) % len(choices)] for nth, (key, choices) in enumerate(values.items())}


def _sparing(values: Mapping[str, list[Any]], needed: list[str]) -> Iterator[dict[str, Any]]:
    """Return the required parameters and one more, for each of the others."""
    for rank in range(2):
        base = {key: values[key][rank % len(values[key])] for key in needed if key in values}
        if base:
            yield base
        for key, choices in values.items():
            if key not in base:
                yield {**base, key: choices[rank % len(choices)]}


def _outputs(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Tokens to emit: each argument's tokens unchanged, and the repeated tokens after each."""
    usable = {token for tokens in TOKENS for token in tokens}
    lists = [value if isinstance(value, list) else [value] for value in arguments.values()]
    named = [value for value in lists if all(type(item) is int and item in usable for item in value)]
    groups = [*named, *[[]] * (2 - len(named))]
    return tuple(token for group in groups for token in (*group, *REPEATED))


def _values(field: Mapping[str, Any], definitions: Mapping[str, Any], tokens: Sequence[int]) -> list[Any]:
    """Return the author's examples of a field, or some values that its JSON schema admits."""
    if field.get("examples"):
        return list(field["examples"])
    if "$ref" in field:
        return _values(definitions.get(field["$ref"].rpartition("/")[2], {}), definitions, tokens)
    for several in ("anyOf", "oneOf"):
        if several in field:
            lists = [_values(option, definitions, tokens) for option in field[several] if option.get("type") != "null"]
            return [value for group in itertools.zip_longest(*lists) for value in group if value is not None]
    if field.get("allOf"):
        return _values(field["allOf"][0], definitions, tokens)
    if "const" in field:
        return [field["const"]]
    if "enum" in field:
        return list(field["enum"])
    kind = field.get("type")
    if kind == "boolean":
        return [True, False]
    if kind == "integer":
        return list(tokens) if field.get("lpkit") == "token_id" else _integers(field)
    if kind == "number":
        return _numbers(field)
    if kind == "array":
        return _lists(field, definitions, tokens)
    if kind == "object":
        return _objects(field, definitions, tokens)
    if kind == "string":
        return _words(tokens) if field.get("lpkit") == "word" else ["a"]
    return []


def _words(tokens: Sequence[int]) -> list[Any]:
    """Return the words with another word first for each parameter, as with tokens."""
    first = [*map(list, TOKENS)].index(list(tokens))
    return [*WORDS[first:], *WORDS[:first]]


def _integers(field: Mapping[str, Any]) -> list[Any]:
    low = field.get("minimum", field.get("exclusiveMinimum", -1) + 1)
    high = field.get("maximum", field.get("exclusiveMaximum", 2**31) - 1)
    return list(dict.fromkeys(value for value in (2, 3, 1, low + 1, low, high) if low <= value <= high))


def _numbers(field: Mapping[str, Any]) -> list[Any]:
    low = field.get("minimum", field.get("exclusiveMinimum"))
    high = field.get("maximum", field.get("exclusiveMaximum"))
    if low is not None and high is not None and high - low <= 2:
        most = 1.0 if "maximum" in field else 0.98
        return [low + share * (high - low) for share in (0.5, most, 0.02)]
    least, most = -1e9 if low is None else low, 1e9 if high is None else high
    within = [value for value in (2.5, 1.5, 0.75) if least < value < most]
    return within or [(least + most) / 2]


def _lists(field: Mapping[str, Any], definitions: Mapping[str, Any], tokens: Sequence[int]) -> list[Any]:
    if "prefixItems" in field:
        return [[_values(item, definitions, tokens)[0] for item in field["prefixItems"]]]
    items = _values(field.get("items", {}), definitions, tokens)
    if not items:
        return []
    least, most = field.get("minItems", 0), field.get("maxItems", 8)
    sizes = dict.fromkeys(max(least, min(size, most)) for size in (1, 2, 3))
    return [[items[i % len(items)] for i in range(size)] for size in sizes if size]


def _objects(field: Mapping[str, Any], definitions: Mapping[str, Any], tokens: Sequence[int]) -> list[Any]:
    if "properties" in field:
        parts = {key: _values(item, definitions, tokens) for key, item in field["properties"].items()}
        return [{key: choices[rank % len(choices)] for key, choices in parts.items() if choices} for rank in range(2)]
    extra = field.get("additionalProperties")
    choices = _values(extra, definitions, tokens) if isinstance(extra, Mapping) else []
    return [{str(token): value} for token, value in zip(tokens, choices, strict=False)]
