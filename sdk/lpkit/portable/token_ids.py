"""Parameters that are token ids."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

from pydantic import Field

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

TokenId = Annotated[int, Field(ge=0, le=INT64_MAX, json_schema_extra={"lpkit": "token_id"})]
"""A token id parameter. Admission declines a request whose ids are outside the model's vocabulary."""


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
