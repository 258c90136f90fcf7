"""Addresses of finished requests' objects, given to the next ones as an engine's allocator does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from sys import getrefcount
from typing import TypeVar

from lpkit.runtime import Request
from lpkit.sampling_params import SamplingParams

T = TypeVar("T")

TRIES = 4096
"""Number of objects created while searching for an address.

Python reuses the list freed last first, and keeps 80 lists ready; a long-running process fills older gaps before.
"""


class Recycler:
    """Frees the lists and parameters of finished requests, and creates the next requests' objects at the same
    addresses.

    An object that the plugin still references is not freed, so its address is not reused.
    """

    def __init__(self) -> None:
        self._lists: list[list[int]] = []
        self._params: list[SamplingParams] = []
        self._model = SamplingParams()

    def let_go(self, finished: Sequence[tuple[Request, bool]]) -> list[Request]:
        """Return records of finished requests that share no object with the plugin.

        ``finished`` must hold the last references to those objects. A request comes with True if the client reuses
        its parameters; its copy then keeps the same object.
        """
        lists: list[int] = []
        blanks: list[int] = []
        records = []
        for request, keep_params in finished:
            lists += _unheld(request, "output_token_ids", "prompt_token_ids")
            blanks += [] if keep_params else _unheld(request, "params")
            prompt = request.prompt_token_ids
            records.append(
                Request(
                    request.request_id,
                    request.params if keep_params else self._model,
                    None if prompt is None else list(prompt),
                    request.max_tokens,
                    prompt_len=request.prompt_len,
                    output_token_ids=list(request.output_token_ids),
                )
            )
            del prompt
        # One kind after the other: objects of both may be of one size, and would take each other's addresses.
        for (request, _), record in zip(finished, records, strict=True):
            request.params = record.params
        # Blank: it is filled in when it is given out.
        self._params += _at(blanks, lambda: SamplingParams.__new__(SamplingParams))
        for (request, _), record in zip(finished, records, strict=True):
            request.output_token_ids = record.output_token_ids
            request.prompt_token_ids = record.prompt_token_ids
        self._lists += _at(lists, lambda: [])  # noqa: PIE807 - list() takes no list that Python keeps ready
        return records

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


def _unheld(request: Request, *names: str) -> list[int]:
    """Return the addresses of these attributes' objects, for objects that only the request references."""
    counted_too = 2
    return [id(getattr(request, name)) for name in names if getrefcount(getattr(request, name)) <= counted_too]


def _at(addresses: Sequence[int], make: Callable[[], T]) -> list[T]:
    """Return new objects at these addresses, in their order, as far as Python provides them."""
    wanted = set(addresses)
    made_at = {}
    rejected = {}  # a list would take the very address that a list has left
    for n in range(TRIES + len(wanted)):
        if not wanted:
            break
        made = make()
        if id(made) in wanted:
            wanted.discard(id(made))
            made_at[id(made)] = made
        else:
            rejected[n] = made
    return [made_at[address] for address in addresses if address in made_at]


_FIELDS: tuple[str, ...] = (
    tuple(item.name for item in fields(SamplingParams))
    if is_dataclass(SamplingParams)
    else getattr(SamplingParams, "__struct_fields__")  # noqa: B009 - not in the class's own namespace, nor in its stub
)
"""vLLM's class is a msgspec Struct, or a dataclass in its stand-in."""
