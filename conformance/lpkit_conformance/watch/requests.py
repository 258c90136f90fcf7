"""What the watcher knows of a request, and what of it may be shown."""

from __future__ import annotations

from typing import Any


class Request:
    """A request in the batch.

    Args:
        params: its SamplingParams.
        prompt_len: tokens of its prompt; on V2, of all that it was filled with when it entered.
        outputs: V1's live list of its output tokens.
    """

    __slots__ = ("opted_out", "outputs", "params", "prompt_len")

    def __init__(self, params: Any, prompt_len: int, outputs: list[int] | None = None) -> None:
        self.params, self.prompt_len, self.outputs = params, prompt_len, outputs
        self.opted_out: dict[int, bool] = {}
        """By the watched processor's number, whether its rows must stay as they are."""


def arguments(params: Any, values: bool) -> dict[str, Any]:
    """The request's ``extra_args``: their names, and their values if ``values``, else their types."""
    given = getattr(params, "extra_args", None) or {}
    return {str(key): _plain(value) if values else f"<{type(value).__name__}>" for key, value in given.items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return repr(value)[:200]
