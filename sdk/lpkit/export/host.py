"""The host behind every export: drives a processor's V1 face for an engine that only shows rows and their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from lpkit.bridging.row_updates import RowUpdates
from lpkit.history.on_host import V1Row
from lpkit.interfaces.config import Config, DeviceConfig, ModelConfig, SchedulerConfig
from lpkit.portable.arguments import extra_args_of
from lpkit.sampling_params import SamplingParams

_FEWEST_ROWS = 8

_LONGEST = 32_768
"""The ``max_model_len`` that processors are told, which may size tables by it: these engines have no such limit."""


class ExportHost:
    """One processor, built for an engine that knows neither batch updates nor slots.

    The engine's face keeps a :class:`V1Row` per request and gives the rows of each step in the order of the logits.
    What changed since the step before reaches the processor as V1's batch updates: another object is another request,
    the same object is the same one with a longer ``output_ids``. :meth:`follow` decides which it is.

    Args:
        cls: a class that has vLLM's V1 interface: any of lpkit's bases, or a V1 class.
        vocab_size: columns of the logits.
        device: of the logits.
        before_temperature: whether the engine divides by the temperature after this. A processor of the ``"sampling"``
            stage then sees logits that are divided by ``SamplingParams.temperature``; its edits are multiplied back.

    Raises:
        TypeError: the class has no V1 interface.
    """

    def __init__(
        self, cls: type[Any], vocab_size: int, device: torch.device, *, before_temperature: bool = True
    ) -> None:
        if not hasattr(cls, "update_state"):
            raise TypeError(
                f"{cls.__qualname__} has no V1 interface, which other engines drive: derive it from lpkit's"
            )
        self._cls, self._vocab_size, self._device = cls, vocab_size, device
        self._before_temperature = before_temperature
        self._limit = 0
        self._grow(_FEWEST_ROWS)

    def _grow(self, rows: int) -> None:
        """Build the processor for a larger batch: its tables have one entry per row."""
        while self._limit < rows:
            self._limit = max(2 * self._limit, _FEWEST_ROWS)
        self._processor = self._cls(configuration(self._vocab_size, self._device, self._limit), self._device, False)
        self._sampling = bool(self._processor.is_argmax_invariant())
        self._updates = RowUpdates()
        self._scale: torch.Tensor | None = None

    def process(self, logits: torch.Tensor, rows: Sequence[V1Row]) -> torch.Tensor:
        """Edit a step's logits.

        Args:
            logits: ``[len(rows), vocab]``, of any floating dtype; processors see float32. Not changed.
            rows: the requests, each object once.

        Returns:
            Logits of the same shape and dtype.
        """
        if len(rows) > self._limit:
            self._grow(len(rows))
        update = self._updates.arrange(list(rows))
        if update is not None:
            self._scale = self._temperatures(rows) if self._sampling and self._before_temperature else None
        self._processor.update_state(update)
        before = logits.to(torch.float32)
        if self._scale is None:
            edited = self._processor.apply(before.clone() if before is logits else before)
        else:
            seen = before / self._scale
            edited = self._processor.apply(seen.clone())
            # What was not changed goes back exactly as it came: x / t * t is not always x.
            edited = torch.where(edited == seen, before, edited * self._scale)
        result: torch.Tensor = edited.to(logits.dtype)
        return result

    def _temperatures(self, rows: Sequence[V1Row]) -> torch.Tensor | None:
        values = [row.params.temperature for row in rows]
        if all(value == 1.0 for value in values):
            return None
        return torch.tensor(values, dtype=torch.float32, device=self._device).unsqueeze(1)


def follow(row: V1Row | None, params: SamplingParams, prompt_ids: list[int], output_ids: Sequence[int]) -> V1Row:
    """The row of a request that an engine shows again, or a new one.

    Args:
        row: what the engine showed in this place, or under this name, in the step before; None: nothing.
        params: of the request.
        prompt_ids: of the request.
        output_ids: its tokens so far.

    Returns:
        ``row``, with what is new in ``output_ids``, if it is the same request with as many tokens or more; else another
        row, as for a request that just arrived: a copied beam, a draft that was rejected, a name that is used again.
    """
    known = len(row.output_ids) if row is not None else 0
    if (
        row is not None
        and row.params is params
        and len(output_ids) >= known
        and row.prompt_ids == prompt_ids
        and row.output_ids == list(output_ids[:known])
    ):
        row.output_ids.extend(output_ids[known:])
        return row
    return V1Row(params, list(prompt_ids), list(output_ids))


def sampling_params(cls: type[Any], given: Mapping[str, Any], temperature: float = 1.0) -> SamplingParams:
    """A request that gives ``cls`` its arguments, validated as a vLLM server would.

    Args:
        cls: a processor's class.
        given: arguments by field name or by key.
        temperature: that the engine will divide by; 0 is greedy.

    Raises:
        ValueError: naming the argument and the rule that it breaks.
    """
    params = SamplingParams(temperature=temperature, extra_args=extra_args_of(cls, given) or None)
    validate = getattr(cls, "validate_params", None)
    if validate is not None:
        validate(params)
    return params


def configuration(vocab_size: int, device: torch.device, rows: int) -> Config:
    """What a processor's constructor gets as ``vllm_config``.

    Args:
        vocab_size: columns of the logits.
        device: of the logits.
        rows: requests in the batch at most.
    """
    return Config(
        SchedulerConfig(rows, max_num_batched_tokens=rows, async_scheduling=False),
        ModelConfig(_LONGEST, vocab_size, SimpleNamespace(vocab_size=vocab_size, eos_token_id=None)),
        DeviceConfig(device),
    )
