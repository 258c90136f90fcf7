"""Defects that LP003 must catch."""

from __future__ import annotations

from lpkit import v1

from zoo.correct.portable import PortableBias
from zoo.correct.v1 import Bias
from zoo.registry import defect


def made_in_a_function() -> type[v1.LogitsProcessor]:
    class Local(Bias):
        pass

    return Local


defect("LP003", "a class made in a function", style="packaging", case=Bias.CASE, line="class Local(")(
    made_in_a_function()
)


class Shadowed(PortableBias):
    """Found under its name is another class, as after a decorator that wraps it."""


defect("LP003", "its name leads to another class", style="packaging", case=PortableBias.CASE)(Shadowed)


Shadowed = type("Shadowed", (PortableBias,), {"__module__": __name__})  # type: ignore[misc]
