"""NVIDIA Dynamo's logits processors on both of vLLM's runners: its specifications, and wrappers for its processors.

A Dynamo worker resolves a :class:`LogitsProcessorSpec` once, when its engine and tokenizer are up, and activates it per
request: :func:`entries_for` decides by the worker's role, :func:`activate` puts the entries into
``SamplingParams.extra_args["dynamo_logits"]``, and an installed plugin (``lpkit-forced-sequence``) acts on them. Dynamo
need not be installed; its own specification objects are accepted as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from lpkit.portable.adapter import AdapterLogitsProcessor
from lpkit.portable.in_order import InOrder
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import RequestLogitsProcessor

__all__ = [
    "GENERATING_ROLES",
    "KEY",
    "BaseLogitsProcessor",
    "DynamoLogitsProcessor",
    "ForcedTokenSequenceSpec",
    "LogitsProcessorSpec",
    "PythonProcessorSpec",
    "activate",
    "entries_for",
    "forced_text",
]

KEY = "dynamo_logits"
"""Where a request carries its entries."""

GENERATING_ROLES = frozenset({"agg", "aggregated", "decode"})
"""Workers whose tokens the client sees. A prefill worker's one token is made without processors."""


class BaseLogitsProcessor(Protocol):
    """Dynamo's interface: edits the logits ``[vocab]`` of one request in place, once per output token, in order."""

    def __call__(self, input_ids: Sequence[int], logits: torch.Tensor) -> Any: ...


@dataclass(frozen=True)
class ForcedTokenSequenceSpec:
    """Force a sequence, then the end-of-sequence token for good.

    Attributes:
        token_ids: the sequence; it may be empty.
        eos_token_id: what follows at each later position.
    """

    token_ids: tuple[int, ...]
    eos_token_id: int


@dataclass(frozen=True)
class PythonProcessorSpec:
    """A live callable; it cannot leave its process, so no vLLM engine can be given one.

    Attributes:
        processor: called as a :class:`BaseLogitsProcessor`.
    """

    processor: Callable[..., Any]


Entry = ForcedTokenSequenceSpec | PythonProcessorSpec


@dataclass(frozen=True)
class LogitsProcessorSpec:
    """What every request of a worker is to be processed with.

    Attributes:
        entries: in the order in which they act.
        generation_only: spare prefill workers.
    """

    entries: tuple[Entry, ...]
    generation_only: bool = True


def forced_text(text: str, tokenizer: Any) -> LogitsProcessorSpec:
    """The specification that makes every reply the same text.

    Args:
        text: the reply.
        tokenizer: one of transformers, used here only.
    """
    ids = tuple(tokenizer.encode(text, add_special_tokens=False))
    return LogitsProcessorSpec((ForcedTokenSequenceSpec(ids, tokenizer.eos_token_id),))


def entries_for(spec: LogitsProcessorSpec | None, role: Any) -> list[Entry]:
    """The entries for one request on a worker; empty where it is not to be processed.

    Args:
        spec: of the worker; None: it has none.
        role: a name, or Dynamo's ``DisaggregationMode``.
    """
    name = str(getattr(role, "value", role)).lower()
    if spec is None or (spec.generation_only and name not in GENERATING_ROLES):
        return []
    return list(spec.entries)


def activate(sampling_params: SamplingParams, entries: Sequence[Entry]) -> None:
    """Put entries into a request. Without any, remove what a client may have put there.

    Args:
        sampling_params: of the request; its ``extra_args`` are replaced.
        entries: what :func:`entries_for` gave.

    Raises:
        TypeError: for an entry that cannot travel to the engine's process.
    """
    others = {key: value for key, value in (sampling_params.extra_args or {}).items() if key != KEY}
    if entries:
        others[KEY] = [_as_json(entry) for entry in entries]
    sampling_params.extra_args = others or None


def _as_json(entry: Any) -> dict[str, Any]:
    token_ids, eos_token_id = getattr(entry, "token_ids", None), getattr(entry, "eos_token_id", None)
    if token_ids is None or eos_token_id is None:
        raise TypeError(
            f"{type(entry).__name__} holds a live Python object, which cannot travel to vLLM's engine process; "
            "subclass lpkit.dynamo.DynamoLogitsProcessor instead, which builds it there"
        )
    return {"kind": "forced_sequence", "token_ids": list(token_ids), "eos_token_id": eos_token_id}


class DynamoLogitsProcessor(AdapterLogitsProcessor):
    """Base for plugins made of Dynamo processors: override :meth:`new_processors`.

    Dynamo's processors may count their calls; vLLM calls more often than it keeps tokens (unfinished prefills, rejected
    drafts), and not from the start for a resumed request. So each request's processors are called once per position, in
    order: when the engine jumps, they are made anew and called for the positions before, on logits that are discarded.
    What was masked stays masked, and a row is never left without a token.
    """

    history = "tokens"

    @abstractmethod
    def new_processors(self, params: Any) -> Sequence[BaseLogitsProcessor]:
        """Make fresh processors for a request. Override it.

        Args:
            params: an instance of ``Params``; None if the class declares none.

        Returns:
            The processors; none, if the request does not use this one.
        """

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Make the callable that keeps the order of calls.

        Args:
            params: of the request.

        Returns:
            One callable for all of the request's processors; None if there are none.
        """
        wanted = self.params(params)
        if wanted is None and self.Params is not None:
            return None
        if not self.new_processors(wanted):
            return None

        def make() -> Callable[..., None]:
            processors = self.new_processors(wanted)

            def call(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> None:
                for processor in processors:
                    processor(output_ids, logits)

            return call

        return InOrder(make)
