"""Parameters that are token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic import Field

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

TokenId = Annotated[int, Field(ge=0, le=INT64_MAX, json_schema_extra={"lpkit": "token_id"})]
"""A token id parameter. Admission declines a request whose ids are outside the model's vocabulary."""

known_vocabulary: list[int] = []
"""The size of the model's vocabulary, in a process that validates arguments and was told: :mod:`lpkit.front_end`."""


def is_token_id(annotation: Any, extra: Any, metadata: list[Any]) -> bool:
    """True if a field is declared as :data:`TokenId`, or as a collection of it."""
    if isinstance(extra, dict) and extra.get("lpkit") == "token_id":
        return True
    for item in metadata:
        if isinstance(getattr(item, "json_schema_extra", None), dict):
            return bool(item.json_schema_extra.get("lpkit") == "token_id")
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return is_token_id(arguments[0], None, list(arguments[1:]))
    return any(is_token_id(argument, None, []) for argument in arguments if argument is not Ellipsis)


def check_ids(key: str, value: Any, vocab_size: int) -> None:
    """Compare token ids with the model's vocabulary.

    Args:
        key: name of the parameter, for the message.
        value: a token id, or a collection of them.
        vocab_size: of the model.

    Raises:
        ValueError: a token id is outside the vocabulary.
    """
    if isinstance(value, int):
        if value >= vocab_size:
            raise ValueError(f"{key}: token id {value} is outside the vocabulary of {vocab_size}")
    elif isinstance(value, Mapping):
        check_ids(key, (*value.keys(), *value.values()), vocab_size)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            check_ids(key, item, vocab_size)
