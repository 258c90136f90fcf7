"""Rebuilds the rollout's request of a sequence from its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from lpkit._nearest import suggest
from lpkit.portable.arguments import extra_args_of
from lpkit.sampling_params import SamplingParams

Parameters = Mapping[str, Any]
"""A processor's arguments, by field name or by key."""

Sampling = SamplingParams | Mapping[str, Any]
"""The engine's own options: a request's ``SamplingParams``, or some of its fields by name."""


def requests_of(
    cls: type[Any] | None,
    parameters: Parameters | Sequence[Parameters | None] | None,
    sampling: Sampling | Sequence[Sampling | None] | None,
    count: int,
) -> list[SamplingParams]:
    """Return the sampling parameters of each of ``count`` sequences, validated as a server would.

    Raises:
        TypeError: ``cls`` is not a class, or parameters are not a mapping.
        ValueError: a name is unknown, a value is refused, given twice or not covered, or a list has the wrong length.
    """
    if cls is not None and not isinstance(cls, type):
        raise TypeError(f"a processor's class is needed, not {cls!r}; make a class of a callable with lpkit.bridge")
    pairs = zip(_each("parameters", parameters, count), _each("sampling", sampling, count), strict=True)
    several = isinstance(parameters, Sequence) or isinstance(sampling, Sequence)
    requests = []
    for number, (given, options) in enumerate(pairs):
        try:
            requests.append(_request(cls, given, options))
        except (TypeError, ValueError) as error:
            if not several:
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"sequence {number}: {error}") from error
    return requests


def _each(what: str, given: Any, count: int) -> list[Any]:
    if not isinstance(given, Sequence):
        return [given] * count
    if len(given) != count:
        raise ValueError(f"{what}: {len(given)} given for {count} sequences")
    return list(given)


def _check_mapping(what: str, given: Any) -> None:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"{what}: a mapping of names to values is needed, not {given!r}")


def _check_covered(params: SamplingParams) -> None:
    """Refuse options that affect sampling but need data of a running engine."""
    if params.bad_words and not params.bad_words_token_ids:
        raise ValueError(
            f"bad_words={params.bad_words!r} have no token ids here: give the rollout's own SamplingParams, "
            "after their update_from_tokenizer"
        )
    if getattr(params, "thinking_token_budget", None) is not None:
        raise ValueError(f"thinking_token_budget={params.thinking_token_budget} is not covered")
    if getattr(params, "structured_outputs", None) is not None:
        raise ValueError(
            "structured_outputs are not covered: leave them out, and give logits that their grammar has masked"
        )


def _request(cls: type[Any] | None, given: Parameters | None, options: Sampling | None) -> SamplingParams:
    _check_mapping("parameters", given)
    params = options.clone() if isinstance(options, SamplingParams) else _with(options)
    _check_covered(params)
    if cls is None:
        return params
    extra, added = dict(params.extra_args or {}), extra_args_of(cls, given or {})
    if twice := sorted(extra.keys() & added.keys()):
        raise ValueError(f"{', '.join(twice)}: given in parameters and in the extra_args of sampling")
    params.extra_args = extra | added or None
    validate = getattr(cls, "validate_params", None)
    if validate is not None:
        validate(params)
    return params


def _with(options: Mapping[str, Any] | None) -> SamplingParams:
    _check_mapping("sampling", options)
    options = options or {}
    fields = [name for name in inspect.signature(SamplingParams).parameters if not name.startswith("_")]
    for name in options:
        if name not in fields:
            raise ValueError(f"vLLM's SamplingParams has no {name!r}; {suggest(name, fields)}")
    try:
        return SamplingParams(**options)
    except Exception as error:  # vLLM's own errors are not all ValueErrors
        raise ValueError(f"sampling: {error}") from error
