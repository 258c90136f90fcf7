"""Records copies and reads from the device to the host, on a machine without a device."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from lpkit_conformance.instruments.devices import NumpyOfDevice
from lpkit_conformance.instruments.edits import author_line


def to_the_host(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
    """True if a call copies a tensor to the host: ``cpu()``, or ``to("cpu")``; a device object may be the logits'."""
    named = func is torch.Tensor.to and any(
        isinstance(item, str) and item == "cpu" for item in (*args[1:2], *(kwargs or {}).values())
    )
    return func is torch.Tensor.cpu or named


class HostCopies(TorchFunctionMode):
    """Makes a real copy of each tensor that goes to the host, as on a GPU.

    Attributes:
        waits: the calls of the author's code that copy to the host, and their lines.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[str, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not to_the_host(func, args, kwargs):
            return result
        if line := author_line():
            self.waits.append(("cpu", line))
        return result.clone() if result is args[0] else result


class ReadsZeros(TorchFunctionMode):
    """Returns zeros when a tensor without memory is read, so that the step continues.

    Attributes:
        read: True if a tensor was read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        of_meta = bool(args) and isinstance(args[0], torch.Tensor) and args[0].is_meta
        if of_meta and func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise NumpyOfDevice("a GPU's tensor has no numpy(): copy it to the host first, by cpu()")
        if of_meta and (func in _READS or to_the_host(func, args, kwargs)):
            self.read = True
            zeros = torch.zeros(args[0].shape, dtype=args[0].dtype)
            return func(zeros) if func in _READS else zeros
        return func(*args, **(kwargs or {}))


_READS = frozenset(
    {
        torch.Tensor.item,
        torch.Tensor.tolist,
        torch.Tensor.__int__,
        torch.Tensor.__float__,
        torch.Tensor.__bool__,
        torch.Tensor.__index__,
    }
)
