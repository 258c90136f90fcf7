"""Presets: the sampling parameters of llama.cpp and koboldcpp, as the steps of a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lpkit._nearest import suggest
from lpkit.rules.document import DocumentError

ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("temperature", "top_k", "top_p", "seed"), "a parameter of the request itself"),
    **dict.fromkeys(("mirostat", "mirostat_tau", "mirostat_eta"), "no rule: its state depends on earlier logits"),
    **dict.fromkeys(("grammar", "json_schema"), "vLLM's structured outputs"),
    **dict.fromkeys(("min_keep", "repeat_last_n", "rep_pen_range", "rep_pen_slope"), "without an equivalent"),
    "ignore_eos": "a parameter of the request itself",
    **dict.fromkeys(
        ("dynatemp_range", "dynatemp_exponent"),
        "give the rule temperature low and high, factors of the request's temperature",
    ),
}
"""Names that are no steps, with the reason."""

ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_a",
    "tail_free",
    "typical",
    "min_p",
    "xtc",
    "temperature",
    "bias",
    "ban",
)
"""Order of the rules without ``samplers``; llama.cpp's, and koboldcpp's for rules that only it has."""

_SAMPLERS = {
    "penalties": "penalties",
    "dry": "dry",
    "top_n_sigma": "top_n_sigma",
    "typ_p": "typical",
    "typical_p": "typical",
    "min_p": "min_p",
    "xtc": "xtc",
    "temperature": "temperature",
    "top_k": "",
    "top_p": "",
}
"""llama.cpp's names of ``samplers``; "" for those that the request's own parameters are."""

_Use = Callable[[Any], bool]


def _above(limit: float) -> _Use:
    return lambda value: value > limit


def _below(limit: float) -> _Use:
    return lambda value: value < limit


def _is_not(neutral: Any) -> _Use:
    return lambda value: value != neutral


NAMES: dict[str, tuple[str, str, _Use]] = {
    "repeat_penalty": ("penalties", "repetition", _is_not(1)),
    "rep_pen": ("penalties", "repetition", _is_not(1)),
    "presence_penalty": ("penalties", "presence", _is_not(0)),
    "frequency_penalty": ("penalties", "frequency", _is_not(0)),
    "dry_multiplier": ("dry", "multiplier", _above(0)),
    "dry_base": ("dry", "base", _is_not(None)),
    "dry_allowed_length": ("dry", "allowed_length", _is_not(None)),
    "dry_penalty_last_n": ("dry", "range", _above(0)),
    "dry_sequence_breakers": ("dry", "breakers", bool),
    "top_n_sigma": ("top_n_sigma", "n", _above(0)),
    "typical_p": ("typical", "threshold", _below(1)),
    "typical": ("typical", "threshold", _below(1)),
    "min_p": ("min_p", "threshold", _above(0)),
    "xtc_probability": ("xtc", "probability", _above(0)),
    "xtc_threshold": ("xtc", "threshold", _is_not(None)),
    "top_a": ("top_a", "threshold", _above(0)),
    "tfs": ("tail_free", "threshold", _below(1)),
    "smoothing_factor": ("temperature", "smoothing", _above(0)),
    "logit_bias": ("bias", "pairs", bool),
    "banned_tokens": ("ban", "phrases", bool),
    "banned_strings": ("ban", "phrases", bool),
}
"""Names of parameters: the rule, its parameter, and True for values that do something."""

_SWITCHES = {"dry": "multiplier", "xtc": "probability"}
"""Rules that act only with this parameter."""


def from_preset(given: Any) -> list[dict[str, Any]]:
    """Turn the parameters of another engine into steps.

    Args:
        given: parameters by llama.cpp's or koboldcpp's names; ``samplers`` gives the order, as for llama.cpp.

    Returns:
        A document.

    Raises:
        DocumentError: a name is unknown or has no equivalent.
    """
    if not isinstance(given, Mapping):
        raise DocumentError(f"/preset: an object is needed, not {type(given).__name__}")
    steps: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        if name == "samplers":
            continue
        if name in ELSEWHERE:
            raise DocumentError(f"/preset/{name}: {ELSEWHERE[name]}")
        if name not in NAMES:
            raise DocumentError(f"/preset/{name[:100]}: unknown; {suggest(name[:100], (*NAMES, 'samplers'))}")
        rule, parameter, acts = NAMES[name]
        try:
            used = acts(value)
        except TypeError:
            raise DocumentError(f"/preset/{name}: {value!r:.100} is not a number") from None
        if used:
            steps.setdefault(rule, {"rule": rule})[parameter] = value
    for rule, switch in _SWITCHES.items():
        if rule in steps and switch not in steps[rule]:
            del steps[rule]
    if "bias" in steps:
        _pairs(steps["bias"])
    return [steps[rule] for rule in _order(given.get("samplers")) if rule in steps]


def _pairs(step: dict[str, Any]) -> None:
    """Turn ``[[id, bias], ...]`` or ``{"id": bias}`` into ids and values."""
    pairs = step.pop("pairs")
    try:
        held = [(int(token), float(value)) for token, value in (pairs.items() if isinstance(pairs, dict) else pairs)]
    except (TypeError, ValueError):
        raise DocumentError("/preset/logit_bias: pairs of a token id and a number are needed") from None
    step |= {"ids": [token for token, _ in held], "values": [value for _, value in held]}


def _order(samplers: Any) -> list[str]:
    if samplers is None:
        return list(ORDER)
    order = []
    for name in samplers if isinstance(samplers, list) else ():
        if name not in _SAMPLERS:
            raise DocumentError(f"/preset/samplers: {name!r:.100} unknown; {suggest(str(name)[:100], _SAMPLERS)}")
        order.append(_SAMPLERS[name])
    return [*order, *(rule for rule in ORDER if rule not in _SAMPLERS.values())]
