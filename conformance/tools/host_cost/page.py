"""The measured section of ``docs/evidence/host-cost.md``: all steps; and the goals that are printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

RUNNERS = ("v1", "v2")
STEADY = ("hot", "warm", "cold", "instructions")
QUANTITIES = (*STEADY[:3], "changing", *STEADY[3:])
HEADING = "## Measured\n"

MOST = {
    "min-p": ("instructions", 60),
    "penalties": ("instructions", 50),
    **dict.fromkeys(("dry", "thinking-budget", "xtc"), ("hot", 8)),
}
"""Most microseconds, or thousands of instructions, of a step of 8 requests."""

OTHERS = ("warm", 25)
"""The same for any other plugin."""

SAME = {"README: MinP": "min-p"}
"""The plugin that does the same, whose counterpart in vLLM is measured."""

OWN = "no more time and instructions than vLLM's own processor"
CHANGING = "no more time than vLLM's own where requests leave and come"
IDLE = "no operation of torch, no new memory"

NO_GOAL = "reported only: the goals are for steady steps"
ONE_OPERATION = (
    "vLLM's own is one operation of torch here; on a GPU it launches a kernel, which only lpkit's figures include"
)
NOT_COMPARED = {("allowed-tokens", "v1"): ONE_OPERATION}
"""Why the figures of vLLM's own processor are not comparable, by name and runner."""

DECIDES_FIRST = "one more launch decides something by the text before the rows are edited"
MORE_LAUNCHES = {
    **dict.fromkeys(("forced-sequence", "synthid", "thinking-budget", "xtc"), (3, DECIDES_FIRST)),
    "loop-breaker": (4, "two more launches decide by the text: one compares all positions, the next one chooses"),
}
"""Launches of dense rules that take more than their budget, and the reason."""

ABOUT = """
Microseconds of a step on V1 and V2, by the number of requests: *hot* in steps without a pause, in which caches hold
the last step; *warm* after what the engine does between two steps; *cold* after a sweep through 48 MiB; *changing* is
*warm* where at least one request, and one of 64, leaves and another comes. Thousands of instructions, for plugins
with a counterpart in vLLM. *Hot* times and instructions repeat: single *warm* and *cold* times are up to twice what
they are in other runs. `make host-cost` with the option `--page` writes this.

vLLM's own on V1 is without its operations on whole vocabularies, which a GPU computes. So its allowed tokens there are
a single operation of torch, measured without the launch that a GPU adds. lpkit's figures include its launches, so this
comparison is no goal. The goals are for steady steps: *changing* is compared, but is no goal either.

"README: MinP" and "an edit of its own" (`logits[ids] = logits[ids] * factor`) call operations of torch only.
"""


class Key(NamedTuple):
    """A step: name, runner, number of requests, and True for vLLM's own processor."""

    name: str
    runner: str
    batch: int
    of_vllm: bool


Found = Mapping[Key, Mapping[str, float]]
"""Quantities of each step; instructions are there where they were counted."""


class Goal(NamedTuple):
    """A goal for a step.

    Attributes:
        name: of the goal, shared by many steps.
        text: the step and its figures.
        holds: True if the figures keep the goal.
        exempt: why the step need not keep it; empty if it must.
    """

    name: str
    text: str
    holds: bool
    exempt: str = ""

    @property
    def missed(self) -> bool:
        """True if the step had to keep the goal, and does not."""
        return not (self.holds or self.exempt)


def goals(measured: Found) -> Iterator[Goal]:
    """Return the goals of the plugins that were measured."""
    for key, ours in measured.items():
        if key.of_vllm:
            continue
        of = f"{key.name} on {key.runner.upper()}, {key.batch} requests"
        theirs = measured.get(key._replace(name=SAME.get(key.name, key.name), of_vllm=True), {})
        for name, quantities, exempt in (
            (OWN, STEADY, NOT_COMPARED.get((key.name, key.runner), "")),
            (CHANGING, ("changing",), NO_GOAL),
        ):
            shared = [quantity for quantity in quantities if quantity in ours and quantity in theirs]
            if shared:
                shown = ", ".join(f"{quantity} {ours[quantity]:.1f} of {theirs[quantity]:.1f}" for quantity in shared)
                holds = all(ours[quantity] <= theirs[quantity] for quantity in shared)
                yield Goal(name, f"{of}: {shown}", holds, exempt)
        if "operations" in ours:
            yield Goal(IDLE, f"{of}: {ours['operations']:.0f}", not ours["operations"])
            if "budget" in ours:
                name = "at most 2 launches" if ours["budget"] > 1 else "1 launch for chosen logits without a history"
                more, reason = MORE_LAUNCHES.get(key.name, (0, ""))
                exempt = reason if ours["launches"] <= more else ""
                yield Goal(name, f"{of}: {ours['launches']:.0f}", ours["launches"] <= ours["budget"], exempt)
        name, most = limit = MOST.get(key.name, OTHERS)
        if key.batch == 8 and name in ours:
            named = ", ".join(plugin for plugin in MOST if MOST[plugin] == limit) or "other plugins"
            unit = "thousand instructions" if name == "instructions" else f"µs {name}"
            yield Goal(f"{named}: at most {most} {unit}", f"{of}: {ours[name]:.1f}", ours[name] <= most)


def _summary(measured: Found) -> Iterator[str]:
    yield "| goal | kept by | not kept by, for a known reason | missed by |"
    yield "|---|--:|---|---|"
    by_name: dict[str, list[Goal]] = {}
    for goal in goals(measured):
        by_name.setdefault(goal.name, []).append(goal)
    for name, each in by_name.items():
        unkept: dict[str, list[str]] = {}
        for goal in each:
            if not goal.holds:
                unkept.setdefault(goal.exempt, []).append(goal.text)
        missed = "; ".join(unkept.pop("", []))
        known = "; ".join(f"{'; '.join(texts)} ({reason})" for reason, texts in unkept.items())
        yield f"| {name} | {sum(goal.holds for goal in each)} of {len(each)} | {known} | {missed} |"


def write(page: Path, measured: Found) -> None:
    """Replace the section of a page."""
    batches = sorted({key.batch for key in measured})
    heads = [f"{batch}, {name}" for batch in batches for name in QUANTITIES]
    lines = [ABOUT, f"| processor | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for name, of_vllm in dict.fromkeys((key.name, key.of_vllm) for key in measured):
        cells = []
        for batch in batches:
            sides = [measured.get(Key(name, runner, batch, of_vllm), {}) for runner in RUNNERS]
            for quantity in QUANTITIES:
                numbers = [f"{side[quantity]:.1f}" if quantity in side else "none" for side in sides]
                cells.append(", ".join(numbers) if set(numbers) != {"none"} else "")
        lines.append(f"| {'vLLM: ' if of_vllm else ''}{name} | {' | '.join(cells)} |")
    lines += ["", *_summary(measured)]
    before, _, rest = page.read_text(encoding="utf-8").partition(HEADING)
    behind = rest.partition("\n## ")
    page.write_text("\n".join([before + HEADING + lines[0], *lines[1:], "".join(behind[1:])]), encoding="utf-8")
