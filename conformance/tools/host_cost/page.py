"""The measured section of ``docs/evidence/host-cost.md``: all steps; and the goals that are printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

RUNNERS = ("v1", "v2")
QUANTITIES = ("hot", "warm", "cold", "instructions")
HEADING = "## Measured\n"

MOST = {
    "min-p": ("instructions", 60),
    "penalties": ("instructions", 50),
    **dict.fromkeys(("dry", "thinking-budget", "xtc"), ("hot", 8)),
}
"""Most microseconds, or thousands of instructions, of a step of 8 requests."""

OTHERS = ("warm", 25)
"""The same for any other plugin."""

ABOUT = """
Microseconds of a step on V1 and V2, by the number of requests: *hot* in steps without a pause, in which caches hold the
last step; *warm* after what the engine does between two steps; *cold* after a sweep through 48 MiB. Thousands of
instructions, for plugins with a counterpart in vLLM. vLLM's own on V1 is without its operations on whole vocabularies,
which a GPU computes. `make host-cost` with the option `--page` writes this.
"""


class Key(NamedTuple):
    """A step: name, runner, number of requests, and True for vLLM's own processor."""

    name: str
    runner: str
    batch: int
    own: bool


Found = Mapping[Key, Mapping[str, float]]
"""Quantities of each step; instructions are there where they were counted."""


class Goal(NamedTuple):
    """A goal with what was found; ``own`` is True for a comparison with vLLM's own processor."""

    text: str
    holds: bool
    own: bool


def goals(found: Found) -> Iterator[Goal]:
    """Return the goals of the steps that were measured."""
    for key, ours in found.items():
        if key.own:
            continue
        of = f"{key.name} on {key.runner.upper()}, {key.batch} requests"
        theirs = found.get(key._replace(own=True), {})
        shared = [name for name in QUANTITIES if name in ours and name in theirs]
        if shared:
            shown = ", ".join(f"{name} {ours[name]:.1f} of {theirs[name]:.1f}" for name in shared)
            yield Goal(f"{of}, vLLM's own: {shown}", all(ours[name] <= theirs[name] for name in shared), True)
        name, most = MOST.get(key.name, OTHERS)
        if key.batch == 8 and name in ours:
            yield Goal(f"{of}: {name} {ours[name]:.1f} of {most}", ours[name] <= most, False)


def write(page: Path, found: Found) -> None:
    """Replace the section of a page."""
    batches = sorted({key.batch for key in found})
    heads = [f"{batch}, {name}" for batch in batches for name in QUANTITIES]
    lines = [ABOUT, f"| processor | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for name, own in dict.fromkeys((key.name, key.own) for key in found):
        cells = []
        for batch in batches:
            sides = [found.get(Key(name, runner, batch, own), {}) for runner in RUNNERS]
            for quantity in QUANTITIES:
                numbers = [f"{side[quantity]:.1f}" if quantity in side else "none" for side in sides]
                cells.append(", ".join(numbers) if set(numbers) != {"none"} else "")
        lines.append(f"| {'vLLM: ' if own else ''}{name} | {' | '.join(cells)} |")
    before, _, rest = page.read_text(encoding="utf-8").partition(HEADING)
    behind = rest.partition("\n## ")
    page.write_text("\n".join([before + HEADING + lines[0], *lines[1:], "".join(behind[1:])]), encoding="utf-8")
