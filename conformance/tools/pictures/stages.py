"""The stages of both samplers, in the order in which ``lpkit.runtime`` goes through them for a request with all."""

from __future__ import annotations

import sys
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from lpkit.runtime import Request, ThinkingMarkers, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.report.svg import add, label

from pictures.canvas import canvas, finished

NAMES = {
    "allow": "allowed token ids",
    "ban_words": "bad words",
    "hold_back_stops": "min tokens",
    "add_bias": "logit bias",
    "penalise": "penalties",
    "argmax": "greedy requests: argmax",
    "apply_temperature": "divide by the temperature",
    "min_p_of_probabilities": "min-p",
    "min_p_of_logits": "min-p",
    "apply_top_k_top_p": "top-k, top-p",
    "sample": "draw a token",
    "V1ThinkingBudget.apply": "thinking budget",
    "_force_ends_of_thoughts": "thinking budget",
    "AtLogits.apply": "processors, stage “logits”",
    "AtSampling.apply": "processors, stage “sampling”",
    "OnV2.apply": "processors, both stages",
}
"""Functions of the samplers, as readers know them."""

SAMPLERS = "lpkit.runtime.sampler"
COLUMN, LINE, BOX = 210, 34, 26


class AtLogits:
    """A V1 processor that does nothing."""

    invariant = False

    def __init__(self, *_: Any) -> None: ...

    def is_argmax_invariant(self) -> bool:
        return self.invariant

    def update_state(self, update: Any) -> None: ...

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


class AtSampling(AtLogits):
    """One that claims to keep the most likely token."""

    invariant = True


class OnV2:
    """A V2 processor that does nothing."""

    def __init__(self, *_: Any) -> None: ...

    def add_request(self, slot: int, params: SamplingParams) -> bool:
        return True

    def apply_staged_writes(self) -> None: ...

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        return logits


def picture() -> str:
    """Both orders beside each other."""
    root = canvas("The stages between the model's logits and the sampled token, on V1 and on V2")
    orders = {"V1": order(V1Engine, [AtLogits, AtSampling]), "V2": order(V2Engine, [OnV2])}
    bottom = 0.0
    for number, (runner, names) in enumerate(orders.items()):
        left = number * (COLUMN + 20)
        label(root, "heading centred", left + COLUMN / 2, 14, runner)
        for line, name in enumerate(("the model's logits", "grammar mask", *names)):
            y = 26 + line * LINE
            if line:
                add(root, "line", "flow", x1=left + COLUMN / 2, y1=y - LINE + BOX, x2=left + COLUMN / 2, y2=y)
            kind = "band hue0" if name.startswith("processors") else "done" if "argmax" in name else "box"
            add(root, "rect", kind, x=left, y=y, width=COLUMN, height=BOX, rx=7)
            text = "name hue0" if name.startswith("processors") else "centred"
            label(root, text, left + COLUMN / 2, y + BOX / 2 + 4, name)
            bottom = max(bottom, y + BOX)
    return finished(root, 2 * COLUMN + 20, bottom + 2)


def order(engine: Any, processors: list[type[Any]]) -> list[str]:
    """What one step of an engine goes through, in the words of :data:`NAMES`.

    Raises:
        KeyError: the sampler has a stage that has no name here.
    """
    built = engine(processors, device="cpu", thinking=ThinkingMarkers((3,), (4,)))
    everything = SamplingParams(
        temperature=0.8,
        min_p=0.1,
        top_k=20,
        top_p=0.9,
        min_tokens=2,
        stop_token_ids=[7],
        logit_bias={5: 1.0},
        allowed_token_ids=list(range(3, 90)),
        frequency_penalty=0.5,
        thinking_token_budget=4,
    )
    everything._bad_words_token_ids = [[8]]
    built.add(Request("all", everything, [1, 2, 3]))
    built.add(Request("greedy", SamplingParams(temperature=0.0), [1, 2]))
    seen: list[str] = []

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        name = _stage(frame, event, argument)
        if name and name not in seen:
            seen.append(name)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        built.step()
    finally:
        sys.setprofile(before)
    return seen


def _stage(frame: FrameType, event: str, argument: Any) -> str:
    """The stage that begins with this event; empty for all else."""
    home, code = str(frame.f_globals.get("__name__", "")), frame.f_code
    if event == "c_call":
        chooses = argument.__name__ == "argmax" and code.co_name == "__call__" and home.startswith(SAMPLERS)
        return NAMES["argmax"] if chooses else ""
    if event != "call":
        return ""
    owner = type(frame.f_locals.get("self", SimpleNamespace())).__name__
    if code.co_name == "apply" and (home.startswith(SAMPLERS) or home == __name__):
        return NAMES[f"{owner}.apply"]
    caller = frame.f_back.f_code.co_name if frame.f_back else ""
    of_a_sampler = caller in ("__call__", "edit", "_before_greedy", "_before_sampling")
    if home.startswith(SAMPLERS) and of_a_sampler and code.co_name not in NOT_STAGES:
        return NAMES[code.co_name]
    return ""


NOT_STAGES = frozenset(
    {
        "_before_greedy",
        "_before_sampling",
        "process",
        "edit",
        "checked",
        "noise",
        "of",
        "is_open",
        "all_greedy",
        "all_random",
    }
    | {"advance", "<listcomp>", "<genexpr>", "__init__"}
)
"""What the samplers call besides."""
