"""Runs a processor in engines other than vLLM: the same class, the same parameters, the same results.

::

    model.generate(**prompts, logits_processor=[lpkit.export.transformers(Penalties, repetition=1.7)])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpkit.export.for_dynamo import ExportedToDynamo
    from lpkit.export.for_mlx import ExportedCallable
    from lpkit.export.for_transformers import ExportedProcessor

__all__ = [
    "continuous_batching",
    "dynamo",
    "mlx",
    "sglang_plugin",
    "transformers",
]

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
    """Make a ``transformers.LogitsProcessor`` for ``generate``.

    Args:
        cls: a processor's class: any of lpkit's bases, a bridge, or a V1 class.
        parameters: for every prompt of the batch, or a sequence with one entry per prompt. None: not used.
        temperature: divides the scores after this processor; matters for the ``"sampling"`` stage. None: ``generate``'s
            own temperature, and 1 in other loops; 0: greedy.
        pad_token_id: of prompts padded on the left, because padding is not history. Only for loops other than
            ``generate``, whose attention mask is used.
        tokenizer: for processors that use ``lpkit.tokenizer``.
        fields: parameters for every prompt, by field name.

    Raises:
        ValueError: an argument is wrong, or unknown.
        TypeError: the class cannot run in transformers.
    """
    from lpkit.export.for_transformers import ExportedProcessor

    given: list[Parameters | None]
    if not isinstance(parameters, Sequence):
        given = [{**(parameters or {}), **fields}]
    elif fields:
        raise ValueError(f"give each prompt's parameters in the sequence, not {', '.join(fields)} as keywords")
    else:
        given = [None if item is None else dict(item) for item in parameters]
    return ExportedProcessor(cls, given, temperature=temperature, pad_token_id=pad_token_id, tokenizer=tokenizer)


def continuous_batching(
    manager: Any, cls: type[Any], parameters: Parameters | None = None, /, *, tokenizer: Any = None, **fields: Any
) -> None:
    """Put a processor without history into a manager of transformers' continuous batching, before it starts.

    ::

        manager = model.init_continuous_batching(generation_config)
        lpkit.export.continuous_batching(manager, MinP)
        manager.start()
        manager.add_request(prompt_ids, min_p_threshold=0.1)

    A request passes its arguments by key to ``add_request``, and fails alone if an argument is wrong.

    Args:
        manager: the result of ``model.init_continuous_batching``.
        cls: a processor's class whose ``history`` is ``"none"``: a processor sees only the current token.
        parameters: for requests without arguments of their own. None: these requests do not use the processor.
        tokenizer: the model's, for processors with word parameters.
        fields: the same parameters, by field name.

    Raises:
        TypeError: the class reads a history, or cannot run outside vLLM.
        ValueError: an argument is wrong, or the manager captures or compiles graphs.
        RuntimeError: the manager has started.
    """
    from lpkit.export.for_continuous_batching import join

    join(manager, cls, {**(parameters or {}), **fields} or None, tokenizer)


def mlx(
    cls: type[Any],
    parameters: Parameters | None = None,
    /,
    *,
    temperature: float = 1.0,
    tokenizer: Any = None,
    **fields: Any,
) -> ExportedCallable:
    """Make a callable for ``logits_processors`` of mlx-lm.

    Args:
        cls, tokenizer, fields: as for :func:`transformers`.
        parameters: of each sequence.
        temperature: of mlx-lm's sampler; matters for processors of the ``"sampling"`` stage.

    Raises:
        ValueError: an argument is wrong, or unknown.
        TypeError: the class cannot run in mlx-lm.
    """
    from lpkit.export.for_mlx import ExportedCallable

    given = {**(parameters or {}), **fields}
    return ExportedCallable(cls, given, temperature=temperature, tokenizer=tokenizer)


def sglang_plugin(cls: type[Any], *, tokenizer: Any = None) -> Callable[[], None]:
    """Make the function for an entry point of the group ``sglang.srt.plugins``, so that SGLang serves the processor.

    ::

        # my_plugin/for_sglang.py, named by the entry point "my_plugin.for_sglang:register"
        register = lpkit.export.sglang_plugin(MyProcessor)

    Requests pass their arguments in ``custom_params``, by key.

    Args:
        cls: a processor's class: any of lpkit's bases, a bridge, or a V1 class.
        tokenizer: for processors with word parameters: a tokenizer, or better a function that makes it, because every
            process imports the module.

    Returns:
        A function without arguments, for SGLang to call in each of its processes.

    Raises:
        TypeError: the class cannot run in SGLang.
    """
    from lpkit.export.host import check_class

    check_class(cls)

    def register() -> None:
        from lpkit.export.for_sglang import serve

        serve(cls, tokenizer)

    return register


def dynamo(
    cls: type[Any],
    parameters: Parameters | None = None,
    /,
    *,
    temperature: float = 1.0,
    tokenizer: Any = None,
    **fields: Any,
) -> ExportedToDynamo:
    """Make a ``BaseLogitsProcessor`` for a worker of NVIDIA Dynamo. :mod:`lpkit.dynamo` is the other direction.

    Args:
        cls, tokenizer, fields: as for :func:`transformers`.
        parameters: of each request.
        temperature: by which the engine divides afterwards; matters for processors of the ``"sampling"`` stage.

    Raises:
        ValueError: an argument is wrong, or unknown.
        TypeError: the class cannot run in Dynamo.
    """
    from lpkit.export.for_dynamo import ExportedToDynamo

    given = {**(parameters or {}), **fields}
    return ExportedToDynamo(cls, given, temperature=temperature, tokenizer=tokenizer)
