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
    temperature: float | None = None,
    pad_token_id: int | None = None,
    tokenizer: Any = None,
    **fields: Any,
) -> ExportedProcessor:
    """A ``transformers.LogitsProcessor`` for ``generate``.

    Args:
        cls: a processor's class: any of lpkit's bases, a bridge, or a V1 class.
        parameters: for every prompt of the batch, or a sequence with those of each; None: the prompt does not use it.
        temperature: that divides the scores after this one, for processors of the ``"sampling"`` stage; None: what
            ``generate`` itself does, 1 in other loops; 0: greedy.
        pad_token_id: of prompts that are padded on the left, in loops other than ``generate``, which knows its
            attention mask: padding is not history.
        tokenizer: for processors that ask ``lpkit.tokenizer`` for one.
        fields: parameters for every prompt, by field name.

    Raises:
        ValueError: an argument is wrong, or unknown.
        TypeError: the class cannot run there.
    """
    from lpkit.export.for_transformers import ExportedProcessor

    given: list[Parameters | None]
    if not isinstance(parameters, Sequence):
        given = [{**(parameters or {}), **fields}]
    elif fields:
        raise ValueError(f"give each prompt's parameters in the sequence, not {', '.join(fields)} besides")
    else:
        given = list(parameters)
    return ExportedProcessor(cls, given, temperature=temperature, pad_token_id=pad_token_id, tokenizer=tokenizer)
