"""Presets: the sampling parameters of llama.cpp and koboldcpp, as the steps of a document."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lpkit._nearest import suggest
from lpkit.rules.document import DocumentError

ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("temperature", "top_k", "top_p", "seed", "ignore_eos"), "a parameter of the request itself"),
    **dict.fromkeys(("mirostat", "mirostat_tau", "mirostat_eta"), "no rule: its state depends on earlier logits"),
    **dict.fromkeys(("grammar", "json_schema"), "vLLM's structured outputs"),
    **dict.fromkeys(("min_keep", "repeat_last_n", "rep_pen_range", "rep_pen_slope"), "without an equivalent"),
    **dict.fromkeys(
        ("dynatemp_range", "dynatemp_exponent"),
        "give the rule temperature low and high, factors of the request's temperature",
    ),
}
"""Names that are no steps, with the reason."""

ORDER = [
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
]
"""Order of the rules without ``samplers``; llama.cpp's, and koboldcpp's for rules that only it has."""

_SAMPLERS = {
    **{rule: rule for rule in ("penalties", "dry", "top_n_sigma", "min_p", "xtc", "temperature")},
    **dict.fromkeys(("typ_p", "typical_p"), "typical"),
    **dict.fromkeys(("top_k", "top_p"), ""),
}
"""Rules by llama.cpp's names of ``samplers``; "" where the request's own parameters do the same."""

_ABOVE_0, _BELOW_1 = partial(operator.lt, 0), partial(operator.gt, 1)
_NOT_0, _NOT_1, _GIVEN = (partial(operator.ne, neutral) for neutral in (0, 1, None))

NAMES: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "repeat_penalty": ("penalties", "repetition", _NOT_1),
    "rep_pen": ("penalties", "repetition", _NOT_1),
    "presence_penalty": ("penalties", "presence", _NOT_0),
    "frequency_penalty": ("penalties", "frequency", _NOT_0),
    "dry_multiplier": ("dry", "multiplier", _ABOVE_0),
    "dry_base": ("dry", "base", _GIVEN),
    "dry_allowed_length": ("dry", "allowed_length", _GIVEN),
    "dry_penalty_last_n": ("dry", "range", _ABOVE_0),
    "dry_sequence_breakers": ("dry", "breakers", bool),
    "top_n_sigma": ("top_n_sigma", "n", _ABOVE_0),
    "typical_p": ("typical", "threshold", _BELOW_1),
    "typical": ("typical", "threshold", _BELOW_1),
    "min_p": ("min_p", "threshold", _ABOVE_0),
    "xtc_probability": ("xtc", "probability", _ABOVE_0),
    "xtc_threshold": ("xtc", "threshold", _GIVEN),
    "top_a": ("top_a", "threshold", _ABOVE_0),
    "tfs": ("tail_free", "threshold", _BELOW_1),
    "smoothing_factor": ("temperature", "smoothing", _ABOVE_0),
    "logit_bias": ("bias", "pairs", bool),
    "banned_tokens": ("ban", "phrases", bool),
    "banned_strings": ("ban", "phrases", bool),
}
"""Names of parameters: the rule, its parameter, and True for values that do something."""

BREAKERS = ("\n", ":", '"', "*")
"""DRY's sequence breakers without ``dry_sequence_breakers``."""

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
    off: set[str] = set()
    for name, value in given.items():
        if name == "samplers":
            continue
        if name in ELSEWHERE:
            raise DocumentError(f"/preset/{name}: {ELSEWHERE[name]}")
        if name not in NAMES:
            raise DocumentError(f"/preset/{name[:100]}: unknown; {suggest(name[:100], (*NAMES, 'samplers'))}")
        if name == "dry_penalty_last_n" and value == 0:
            off.add("dry")
        rule, parameter, acts = NAMES[name]
        try:
            used = acts(value)
        except TypeError:
            raise DocumentError(f"/preset/{name}: {value!r:.100} is not a number") from None
        if used:
            step = steps.setdefault(rule, {"rule": rule})
            step[parameter] = [*step[parameter], *value] if parameter == "phrases" and parameter in step else value
    off |= {rule for rule, switch in _SWITCHES.items() if switch not in steps.get(rule, ())}
    for rule in off & steps.keys():
        del steps[rule]
    if "dry" in steps:
        steps["dry"].setdefault("breakers", list(BREAKERS))
    if "bias" in steps:
        _pairs(steps)
    return [steps[rule] for rule in _order(given.get("samplers")) if rule in steps]


def _pairs(steps: dict[str, dict[str, Any]]) -> None:
    """Turn ``[[id, bias], ...]`` or ``{"id": bias}`` into ids and values; a bias of ``false`` bans the token."""
    given = steps["bias"].pop("pairs")
    held: dict[int, Any] = {}
    try:
        for token, value in given.items() if isinstance(given, dict) else given:
            if isinstance(token, bool | float) or not (value is False or type(value) in (int, float)):
                raise TypeError
            held[int(token)] = value
    except (TypeError, ValueError):
        raise DocumentError("/preset/logit_bias: pairs of a token id and a number are needed") from None
    banned = [token for token, value in held.items() if value is False]
    if banned:
        ban = steps.setdefault("ban", {"rule": "ban"})
        ban["phrases"] = [*ban.get("phrases", ()), *banned]
    biased = {token: value for token, value in held.items() if value is not False}
    steps["bias"] |= {"ids": list(biased), "values": list(biased.values())}
    if not biased:
        del steps["bias"]


def _order(samplers: Any) -> list[str]:
    if samplers is None:
        return ORDER
    if not isinstance(samplers, list) or not all(isinstance(name, str) for name in samplers):
        raise DocumentError("/preset/samplers: a list of names is needed")
    for name in samplers:
        if name not in _SAMPLERS:
            raise DocumentError(f"/preset/samplers: {name[:100]!r} unknown; {suggest(name[:100], _SAMPLERS)}")
    return [*(_SAMPLERS[name] for name in samplers), *(rule for rule in ORDER if rule not in _SAMPLERS.values())]
