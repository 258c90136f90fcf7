"""Finds calls that send host values to a device invisibly to dispatch modes: torch does so in one step."""

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
    """Return the bytes of lists, arrays and numbers that a call sends to a device; 0 if none, or to the host."""
    if func in FROM_VALUES and args:
        values = args[func is torch.Tensor.new_tensor]
        return 0 if isinstance(values, torch.Tensor) or result.device.type == "cpu" else int(result.nbytes)
    if func in SUBSCRIPTS and args[0].device.type != "cpu":
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return sum(np.asarray(item).nbytes for item in index if isinstance(item, list | range | np.ndarray))
    return 0


class SeeValues(TorchFunctionMode):
    """Reports bytes that a call sends to a device in this way.

    Args:
        seen: bytes counted by other means; a call that adds to them is not reported again.
        sent: is called with the bytes of each call.
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
