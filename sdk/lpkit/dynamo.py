"""NVIDIA Dynamo's logits processors on both of vLLM's runners: specifications, and wrappers for processors.

A Dynamo worker resolves a :class:`LogitsProcessorSpec` once, when its engine and tokenizer are up. For each request,
:func:`entries_for` chooses entries by the worker's role, and :func:`activate` puts them into
``SamplingParams.extra_args["dynamo_logits"]``. An installed plugin (``lpkit-forced-sequence``) acts on them. Dynamo
need not be installed; its own specification objects work as well.
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
"""The key of ``extra_args`` that holds a request's entries."""

GENERATING_ROLES = frozenset({"agg", "aggregated", "decode"})
"""Roles of workers whose tokens the client sees. A prefill worker makes its one token without processors."""


class BaseLogitsProcessor(Protocol):
    """Dynamo's interface: edits the logits ``[vocab]`` of one request in place, once per output token, in order."""

    def __call__(self, input_ids: Sequence[int], logits: torch.Tensor) -> Any: ...


@dataclass(frozen=True)
class ForcedTokenSequenceSpec:
    """Force a sequence of tokens, then the end-of-sequence token forever.

    Attributes:
        token_ids: the sequence; it may be empty.
        eos_token_id: the token at each later position.
    """

    token_ids: tuple[int, ...]
    eos_token_id: int


@dataclass(frozen=True)
class PythonProcessorSpec:
    """A live callable. It cannot leave its process, so it cannot reach a vLLM engine.

    Attributes:
        processor: called like a :class:`BaseLogitsProcessor`.
    """

    processor: Callable[..., Any]


Entry = ForcedTokenSequenceSpec | PythonProcessorSpec


@dataclass(frozen=True)
class LogitsProcessorSpec:
    """Entries for every request of a worker.

    Attributes:
        entries: in the order in which they act.
        generation_only: True to leave prefill workers out.
    """

    entries: tuple[Entry, ...]
    generation_only: bool = True


def forced_text(text: str, tokenizer: Any) -> LogitsProcessorSpec:
    """Make the specification that gives every reply the same text.

    Args:
        text: the reply.
        tokenizer: a tokenizer of transformers, used only in this call.
    """
    ids = tuple(tokenizer.encode(text, add_special_tokens=False))
    return LogitsProcessorSpec((ForcedTokenSequenceSpec(ids, tokenizer.eos_token_id),))


def entries_for(spec: LogitsProcessorSpec | None, role: Any) -> list[Entry]:
    """Return the entries for one request on a worker; empty if the worker does not process requests.

    Args:
        spec: of the worker, or None.
        role: a name, or Dynamo's ``DisaggregationMode``.
    """
    name = str(getattr(role, "value", role)).lower()
    if spec is None or (spec.generation_only and name not in GENERATING_ROLES):
        return []
    return list(spec.entries)


def activate(sampling_params: SamplingParams, entries: Sequence[Entry]) -> None:
    """Put entries into a request. Without entries, remove any that the client sent.

    Args:
        sampling_params: of the request; its ``extra_args`` are replaced.
        entries: the result of :func:`entries_for`.

    Raises:
        TypeError: an entry cannot travel to the engine's process.
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
    """Base for plugins made from Dynamo processors: override :meth:`new_processors`.

    Dynamo's processors may count their calls. vLLM calls more often than it keeps tokens (unfinished prefills, rejected
    drafts), and starts in the middle for a resumed request. So lpkit calls each request's processors exactly once per
    position, in order. If the engine jumps, lpkit makes new processors and replays the earlier positions on logits that
    it discards. Masked tokens stay masked, and every row keeps a token.
    """

    history = "tokens"

    @abstractmethod
    def new_processors(self, params: Any) -> Sequence[BaseLogitsProcessor]:
        """Make new processors for a request. Override it.

        Args:
            params: an instance of ``Params``; None if the class declares none.

        Returns:
            The processors; empty if the request does not use this plugin.
        """

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
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
