"""Addresses of finished requests' objects, given to the next ones as an engine's allocator does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import TypeVar

from lpkit.runtime import Request
from lpkit.sampling_params import SamplingParams

T = TypeVar("T")

TRIES = 4096
"""Objects made in search of an address: Python hands out first what it got back last, but keeps 80 lists ready, and
in a process with a long past it fills older gaps before."""


class Recycler:
    """Lets go of finished requests' lists and parameters, and makes the next requests' objects where those were.

    Only what nobody else holds is gone: a plugin that keeps the objects themselves never meets their addresses again.
    """

    def __init__(self) -> None:
        self._lists: list[list[int]] = []
        self._params: list[SamplingParams] = []
        self._model = SamplingParams()

    def let_go(self, request: Request, keep_params: bool) -> Request:
        """A record of a finished request with none of the objects that a plugin was given, which must be its only ones.

        ``keep_params``: the client uses the parameters again, so that the record has the same object.
        """
        prompt, outputs = request.prompt_token_ids, list(request.output_token_ids)
        record = Request(
            request.request_id,
            request.params if keep_params else self._model,
            None if prompt is None else list(prompt),
            request.max_tokens,
            prompt_len=request.prompt_len,
            output_token_ids=outputs,
        )
        addresses = id(request.output_token_ids), id(prompt), id(request.params)
        del prompt
        request.output_token_ids = record.output_token_ids
        self._lists += _at(addresses[0], list)
        request.prompt_token_ids = record.prompt_token_ids
        self._lists += _at(addresses[1], list)
        request.params = record.params
        if not keep_params:
            # Blank: it is filled in when it is given out.
            self._params += _at(addresses[2], lambda: SamplingParams.__new__(SamplingParams))
        return record

    def renew(self, request: Request, keep_params: bool) -> None:
        """Move a new request's objects to addresses that have become free; its parameters unless they are shared."""
        if self._lists:
            outputs, request.output_token_ids = request.output_token_ids, self._lists.pop(0)
            request.output_token_ids.extend(outputs)
        if self._lists and request.prompt_token_ids is not None:
            prompt, request.prompt_token_ids = request.prompt_token_ids, self._lists.pop(0)
            request.prompt_token_ids.extend(prompt)
        if self._params and not keep_params:
            params, request.params = request.params, self._params.pop()
            for name in _FIELDS:
                setattr(request.params, name, getattr(params, name))


def _at(address: int, make: Callable[[], T]) -> list[T]:
    """A new object at this address, if Python has it to give."""
    rejected = {}  # a list would take the very address that a list has left
    for n in range(TRIES):
        found = make()
        if id(found) == address:
            return [found]
        rejected[n] = found
    return []


_FIELDS: tuple[str, ...] = (
    tuple(item.name for item in fields(SamplingParams))
    if is_dataclass(SamplingParams)
    else getattr(SamplingParams, "__struct_fields__")  # noqa: B009 - not in the class's own namespace, nor in its stub
)
"""vLLM's class is a msgspec Struct, or a dataclass in its stand-in."""
