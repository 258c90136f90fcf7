"""Wrong and right code for checks: three small processors that are right, and per check the lines that make one wrong.

``LPnnn.diff`` starts with the module it belongs to and, if need be, other checks that its wrong form may fail too::

    module: v1
    also: LP603

Then the diff from the wrong form to the right one, hunks separated by empty lines. It is what a reader is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

CASES = {
    "v1": {"extra_args": {"echo": 1.5}},
    "v2": {"extra_args": {"echo": 1.5}},
    "portable": {"extra_args": {"floor": 0.2}},
}
"""By module: how to switch its processor on."""


@dataclass(frozen=True)
class Example:
    """One check's example.

    Attributes:
        module: ``v1``, ``v2`` or ``portable``.
        diff: hunks of lines that begin with ``-`` (wrong), ``+`` (right) or a space (both).
        also: other checks that the wrong form may fail.
    """

    module: str
    diff: str
    also: tuple[str, ...]

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


def codes() -> list[str]:
    """Checks that have an example."""
    return sorted(item.name.removesuffix(".diff") for item in files(__name__).iterdir() if item.name.endswith(".diff"))


def example(code: str) -> Example | None:
    """The example of a check, if it has one."""
    if code not in codes():
        return None
    head, _, diff = _read(f"{code}.diff").partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return Example(fields["module"], diff.rstrip("\n"), tuple(fields.get("also", "").replace(",", "").split()))


def _read(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")
