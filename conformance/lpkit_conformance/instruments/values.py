"""Calls that send a device values of the host in a way that no dispatch mode sees: torch does it in one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

SUBSCRIPTS = frozenset({torch.Tensor.__getitem__, torch.Tensor.__setitem__})

FROM_VALUES = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor})
"""Functions that make a tensor of values of the host."""


def bytes_of_values(func: Callable[..., Any], args: tuple[Any, ...], result: Any) -> int:
    """How much a call sends a device of lists, arrays and numbers that it is given; 0 if nothing, or to the host."""
    if func in FROM_VALUES and args:
        values = args[func is torch.Tensor.new_tensor]
        return 0 if isinstance(values, torch.Tensor) or result.device.type == "cpu" else int(result.nbytes)
    if func in SUBSCRIPTS and args[0].device.type != "cpu":
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return sum(np.asarray(item).nbytes for item in index if isinstance(item, list | range | np.ndarray))
    return 0


class SeeValues(TorchFunctionMode):
    """Tells of what is sent in this way.

    Args:
        seen: bytes that were seen otherwise; what a call adds to them is not told once more.
        sent: is told the bytes of each call.
    """

    def __init__(self, seen: Callable[[], int], sent: Callable[[int], None]) -> None:
        super().__init__()
        self._seen, self._sent = seen, sent

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self._seen()
        result = func(*args, **(kwargs or {}))
        size = bytes_of_values(func, args, result)
        if size and self._seen() == before:
            self._sent(size)
        return result
