"""Wrong and right code for checks: small processors that are right, and per check the lines that make one wrong.

A check has up to two examples: ``LPnnn.sdk.diff`` on lpkit's base classes, which a reader is shown first, and
``LPnnn.diff`` on vLLM's own interfaces. A file starts with the module it belongs to and, if need be, other checks that
its wrong form may fail too::

    module: v1
    also: LP603

Further fields hold text of the report on the wrong form, such as ``line: clone()``. Then the diff from wrong to
right, hunks separated by empty lines. It is what a reader is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

CASES = {
    "portable": {"extra_args": {"floor": 0.2}},
    "nudge": {"extra_args": {"nudge_up": 4, "nudge_down": 9}},
    "noise": {"extra_args": {"noise": 1.5, "noise_seed": 3}},
    **{module: {"extra_args": {"echo": 1.5}} for module in ("tokens", "adapter", "v1", "v2")},
}
"""By module: how to switch its processor on."""

STYLES = {".sdk.diff": "lpkit's base classes", ".diff": "vLLM's own interfaces"}
"""Suffixes of examples, in the order of showing them, and what their processors derive from."""


@dataclass(frozen=True)
class Example:
    """One wrong processor, next to the right one.

    Attributes:
        module: the module with the right one, a key of ``CASES``.
        diff: hunks of lines that begin with ``-`` (wrong), ``+`` (right) or a space (both).
        also: other checks that the wrong form may fail.
        bases: what the processor derives from.
        texts: texts of the report on the wrong form, by field.
    """

    module: str
    diff: str
    also: tuple[str, ...] = ()
    bases: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def right(self) -> str:
        """The whole module."""
        return _read(f"{self.module}.py")

    @property
    def wrong(self) -> str:
        """The whole module with the mistake.

        Raises:
            ValueError: if a hunk does not fit the module, or fits in two places.
        """
        text = self.right
        for hunk in self.diff.split("\n\n"):
            lines = hunk.strip("\n").split("\n")
            good = "\n".join(line[1:] for line in lines if line[:1] in "+ ") + "\n"
            bad = "\n".join(line[1:] for line in lines if line[:1] in "- ") + "\n"
            if text.count(good) != 1:
                raise ValueError(f"{self.module}.py has these lines {text.count(good)} times, not once:\n{good}")
            text = text.replace(good, bad)
        return text


def names() -> list[str]:
    """The files of all examples."""
    return sorted(item.name for item in files(__name__).iterdir() if item.name.endswith(".diff"))


def example(name: str) -> Example:
    """The example in a file."""
    head, _, diff = _read(name).partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    module, also = fields.pop("module"), tuple(fields.pop("also", "").replace(",", "").split())
    return Example(module, diff.rstrip("\n"), also, STYLES[name[name.index(".") :]], fields)


def examples_of(code: str) -> list[Example]:
    """The examples of a check, in the order of showing them."""
    return [example(code + suffix) for suffix in STYLES if code + suffix in names()]


def _read(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")
