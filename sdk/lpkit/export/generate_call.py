"""Facts about a running ``generate`` of transformers that processors do not get."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
from transformers import TemperatureLogitsWarper

if TYPE_CHECKING:
    from types import FrameType


class GenerateCall:
    """A call of ``model.generate(...)``.

    transformers passes token ids and scores to a processor. The end of the prompt, the padding, the temperature that
    follows and the start of a new call stay unknown. The frame of ``generate`` holds all of it in its local variables,
    unchanged while its decoding loop runs. So lpkit reads the frame, once per call.
    """

    def __init__(self, processor: object, local: dict[str, Any]) -> None:
        self._config = weakref.ref(local["generation_config"])  # generate copies it for each call
        self.prompts: torch.Tensor = local["input_ids"]
        self.batch_size: int = local["batch_size"]
        self.mask: torch.Tensor | None = None if local["self"].config.is_encoder_decoder else _mask(local)
        self.temperature = _temperature_after(processor, local)

    @property
    def runs(self) -> bool:
        """True until ``generate`` returns."""
        return self._config() is not None

    def is_still(self, local: dict[str, Any]) -> bool:
        """True if ``local`` belongs to the same call."""
        return self._config() is local["generation_config"]


def locals_of_generate(processor: object) -> tuple[dict[str, Any] | None, bool]:
    """Return local variables of the ``generate`` that runs with ``processor``, and True if another runs inside.

    An assistant model's ``generate`` gets the processors of its target, so the outermost call is the user's. Outside of
    ``generate``, the first result is None.
    """
    outermost: dict[str, Any] | None = None
    times = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "generate" and frame.f_globals.get("__name__") == "transformers.generation.utils":
            local = frame.f_locals
            if local.keys() >= _NEEDED and any(item is processor for item in local["prepared_logits_processor"]):
                outermost, times = local, times + 1
        frame = frame.f_back
    return outermost, times > 1


_NEEDED = {"self", "generation_config", "prepared_logits_processor", "input_ids", "batch_size", "model_kwargs"}


def _mask(local: dict[str, Any]) -> torch.Tensor | None:
    """Return the prompts' attention mask; None without masked tokens, or if the prompts are not token ids."""
    mask: torch.Tensor | None = local["model_kwargs"].get("attention_mask")
    return mask if mask is not None and mask.shape == local["input_ids"].shape else None


def _temperature_after(processor: object, local: dict[str, Any]) -> float:
    """Return the divisor of the scores after ``processor``; 0 if nothing is sampled."""
    if not local["generation_config"].do_sample:
        return 0.0
    temperature, passed = 1.0, False
    for item in local["prepared_logits_processor"]:
        passed = passed or item is processor
        if passed and isinstance(item, TemperatureLogitsWarper):
            temperature *= item.temperature
    return temperature
