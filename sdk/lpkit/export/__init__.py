"""A processor in engines other than vLLM: the same class, the same parameters, the same results.

::

    model.generate(**prompts, logits_processor=[lpkit.export.transformers(Penalties, repetition=1.7)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpkit.export.for_transformers import ExportedProcessor

__all__ = ["transformers"]

Parameters = Mapping[str, Any]
"""Arguments by field name (``repetition``) or by key, as in a request (``penalties_repetition``)."""


def transformers(
    cls: type[Any],
    parameters: Parameters | Sequence[Parameters | None] | None = None,
    /,
    *,
    temperature: float = 1.0,
    pad_token_id: int | None = None,
    **fields: Any,
) -> ExportedProcessor:
    """A ``transformers.LogitsProcessor`` for ``generate``.

    Args:
        cls: a processor's class: any of lpkit's bases, a bridge, or a V1 class.
        parameters: for every prompt of the batch, or a sequence with those of each; None: the prompt does not use it.
        temperature: that ``generate`` divides by after this; matters for processors of the ``"sampling"`` stage.
        pad_token_id: of prompts that are padded on the left: padding is not history.
        fields: parameters for every prompt, by field name.

    Raises:
        ValueError: an argument is wrong, or unknown.
        TypeError: the class cannot run there.
    """
    from lpkit.export.for_transformers import ExportedProcessor
    from lpkit.export.host import sampling_params

    given = parameters if isinstance(parameters, Sequence) else [{**(parameters or {}), **fields}]
    if fields and isinstance(parameters, Sequence):
        raise ValueError(f"give each prompt's parameters in the sequence, not {', '.join(fields)} besides")
    requests = [sampling_params(cls, item or {}, temperature) for item in given]
    return ExportedProcessor(cls, requests, pad_token_id)
