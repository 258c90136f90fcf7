"""A sequence's parameters as the request that the rollout was."""

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
    """What each sequence of a batch was sampled with, validated as a server would.

    Args:
        cls: a processor's class; None: no processor.
        parameters: of all sequences, or a list with those of each.
        sampling: alike.
        count: of sequences.

    Raises:
        ValueError: an unknown name, a value that is refused or given twice, or a list of the wrong length.
    """
    pairs = zip(_each("parameters", parameters, count), _each("sampling", sampling, count), strict=True)
    return [_request(cls, given, options) for given, options in pairs]


def _each(what: str, given: Any, count: int) -> list[Any]:
    if not isinstance(given, Sequence):
        return [given] * count
    if len(given) != count:
        raise ValueError(f"{what}: {len(given)} given for {count} sequences")
    return list(given)


def _request(cls: type[Any] | None, given: Parameters | None, options: Sampling | None) -> SamplingParams:
    params = options.clone() if isinstance(options, SamplingParams) else _with(options or {})
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


def _with(options: Mapping[str, Any]) -> SamplingParams:
    known = [name for name in inspect.signature(SamplingParams).parameters if not name.startswith("_")]
    for name in options:
        if name not in known:
            raise ValueError(f"vLLM's SamplingParams has no {name!r}; {suggest(name, known)}")
    return SamplingParams(**options)
