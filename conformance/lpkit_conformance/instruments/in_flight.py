"""A device that runs behind its host: copies from pinned memory take their bytes when the host is steps ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from lpkit import kernels
from torch.overrides import TorchFunctionMode

from lpkit_conformance.instruments.edits import author_line

DEVICE = torch.device("cuda")
"""The device that the plugin sees; its tensors stay on the CPU."""

_SYNCS = frozenset(
    {torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu}
    | {getattr(torch.Tensor, f"__{name}__") for name in ("bool", "int", "float")}
)
"""Operations that wait for the device when called on one of its tensors."""


@dataclass
class Copy:
    """One copy that may be in flight while the host goes on.

    Attributes:
        step, method, location: of the copy; the location is the author's line, as ``file:line``.
        source: the memory that the device reads.
        staged: the bytes that the host intended to send.
        arrived: the bytes in the source when the device has finished the copy; None until then.
    """

    step: int
    method: str
    location: str
    source: torch.Tensor
    staged: torch.Tensor
    arrived: torch.Tensor | None = None

    @property
    def overwritten(self) -> bool:
        """True if the host has written into the source too early."""
        return self.arrived is not None and not torch.equal(_bytes(self.staged), _bytes(self.arrived))


class InFlight(TorchFunctionMode):
    """Simulates pinned memory, and a device that lags behind the host; entered around each call of a plugin.

    The first run records each copy's source when the host has begun ``depth`` further steps, or has waited for the
    device.
    A second run with the copies of the first gets these bytes: it computes the results of a lagging device.

    Args:
        depth: number of steps in flight.
        earlier: the copies of the first run.

    Attributes:
        copies: so far.
        method: the method of the plugin that is running.
    """

    def __init__(self, depth: int, earlier: Sequence[Copy] = ()) -> None:
        super().__init__()
        self.copies: list[Copy] = []
        self.method = ""
        self._depth, self._earlier = depth, earlier
        self._step = 0
        self._pinned: dict[int, torch.Tensor] = {}

    def begin(self, step: int) -> None:
        """The host begins a step: what is ``depth`` steps old is done."""
        self._step = step
        for copy in self.copies:
            if copy.step + self._depth <= step:
                self._land(copy)

    def wait(self, count: int | None = None) -> None:
        """The host waits for the device: the first ``count`` copies are done."""
        for copy in self.copies[:count]:
            self._land(copy)

    @staticmethod
    def _land(copy: Copy) -> None:
        if copy.arrived is None:
            copy.arrived = copy.source.clone()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:  # a plugin may make its device again from its name, and gets this one
            return func(*args, **(kwargs or {}))
        args = tuple(map(_on_cpu, args))
        kwargs = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        if func in _SYNCS:
            self.wait()
        if func is torch.Tensor.pin_memory:
            return args[0] if self._is_pinned(args[0]) else self._pin(args[0].clone())
        if func is torch.Tensor.is_pinned:
            return self._is_pinned(args[0])
        if kwargs.pop("pin_memory", False):
            return self._pin(func(*args, **kwargs))
        if func is torch.Tensor.cuda:
            func, args = torch.Tensor.to, (args[0], torch.device("cpu"), *(a for a in args[1:] if a is True))
        # The string "cpu" is the host; a device, or a tensor on it, is this one.
        names_device = any(isinstance(value, torch.device | torch.Tensor) for value in (*args[1:], *kwargs.values()))
        if func is torch.Tensor.to and names_device:
            data = self._sent(args[0]) if _non_blocking(args[1:], kwargs) else args[0]
            result = func(data, *args[1:], **kwargs)
            return result.clone() if result is args[0] else result
        if func is torch.Tensor.copy_ and _non_blocking(args[2:], kwargs) and not self._is_pinned(args[0]):
            return func(args[0], self._sent(args[1]))
        return func(*args, **kwargs)

    def _pin(self, tensor: torch.Tensor) -> torch.Tensor:
        # Kept, so that no other tensor gets its address.
        self._pinned[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def _is_pinned(self, tensor: Any) -> bool:
        return isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() in self._pinned

    def _sent(self, source: torch.Tensor) -> torch.Tensor:
        """Return the bytes of ``source`` that the device gets. Pageable memory is copied at once."""
        if not self._is_pinned(source):
            return source
        number = len(self.copies)
        self.copies.append(Copy(self._step, self.method, author_line(), source, source.clone()))
        earlier = self._earlier[number].arrived if number < len(self._earlier) else None
        late = earlier is not None and (earlier.shape, earlier.dtype) == (source.shape, source.dtype)
        return (earlier if late else source).clone()  # type: ignore[union-attr]

    @contextmanager
    def events(self) -> Iterator[None]:
        """Replace CUDA's events and streams by this device's within the context, and compile no kernels for a
        real device."""
        flight = self

        class Event:
            """Waits for the copies before it."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                self._count = 0

            def record(self, stream: Any = None) -> None:
                self._count = len(flight.copies)

            def synchronize(self) -> None:
                flight.wait(self._count)

            def wait(self, stream: Any = None) -> None: ...

            def query(self) -> bool:
                flight.wait(self._count)
                return True

        class Stream:
            """The only stream."""

            def synchronize(self) -> None:
                flight.wait()

            def record_event(self, event: Any = None) -> Any:
                event = event or Event()
                event.record()
                return event

            def wait_event(self, event: Any) -> None: ...

        def synchronize(device: Any = None) -> None:
            flight.wait()

        def current_stream(device: Any = None) -> Stream:
            return Stream()

        with (
            mock.patch.multiple(torch.cuda, Event=Event, synchronize=synchronize, current_stream=current_stream),
            mock.patch.object(torch, "Event", Event),
            mock.patch.multiple(kernels, prepare=lambda *_: None, prepare_few=lambda *_: None),
        ):
            yield


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == DEVICE.type:
        return torch.device("cpu")
    return torch.device("cpu") if isinstance(value, str) and value.partition(":")[0] == DEVICE.type else value


def _non_blocking(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    flags = [value for value in args if isinstance(value, bool)]
    return bool(kwargs.get("non_blocking", flags[0] if flags else False))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
