"""Processors that take or change what belongs to their process."""

from __future__ import annotations

import functools
from typing import Any

from zoo.correct import Bias
from zoo.registry import defect


@functools.cache
def _weight(bias: float) -> float:
    return bias


@defect("LP603", "a cache without a bound, by an argument that clients choose", style="v1")
class CachesByArgument(Bias):
    @classmethod
    def read(cls, params: Any) -> Any:
        found = super().read(params)
        return found and (found[0], _weight(found[1]))
