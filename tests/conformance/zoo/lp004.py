"""Defects that LP004 must catch."""

from __future__ import annotations

from zoo.correct.v1 import Bias
from zoo.registry import defect


@defect("LP004", "right in every way but one: it implements V1 only")
class V1Only(Bias):
    pass
