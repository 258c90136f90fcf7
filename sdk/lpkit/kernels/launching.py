"""The one place that launches Triton kernels, and repeats a step's launches with other addresses.

Half of the host's time of a launch is Triton's Python. A :class:`Plan` has what the driver needs, prepared once, and
calls ``cuLaunchKernelEx``, which has been stable since CUDA 11.8. It launches by Triton where it cannot do that: while
hooks watch launches, on other devices than NVIDIA's, under Triton's interpreter, and for kernels with unusual demands.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch


class Launch(NamedTuple):
    """A launch by Triton, and the kernel that Triton compiled for it; None under the interpreter."""

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    options: dict[str, Any]
    compiled: Any


class _Recording(threading.local):
    launches: list[Launch] | None = None


_recording = _Recording()


def launch(kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], **options: Any) -> None:
    """Launch a kernel. All functions of :mod:`lpkit.kernels` do so here, and take new memory from ``torch.empty`` only:
    then the launches of a step can be repeated with other addresses, without the Python of these functions.

    Args:
        kernel: compiled by ``triton.jit``.
        grid: number of programs by dimension, integers.
        args: of the kernel, tensors and numbers, in order.
        options: the kernel's ``constexpr`` arguments, and Triton's options such as ``num_warps``.
    """
    compiled = kernel[grid](*args, **options)
    if _recording.launches is not None:
        _recording.launches.append(Launch(kernel, grid, args, options, compiled))


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Record this thread's launches."""
    launches: list[Launch] = []
    _recording.launches = launches
    try:
        yield launches
    finally:
        _recording.launches = None


def place() -> tuple[int, int]:
    """Return the current device and stream. A plan is for one stream, because its steps use the same memory."""
    driver = _driver()
    return (0, 0) if driver is None else driver.place()


class Plan:
    """Launches that are repeated with other addresses of some of their tensors; it keeps all others alive.

    Args:
        launches: recorded on this device and stream.
        moving: the tensors whose addresses change. Each step gives tensors of the same type, strides, and alignment.

    Raises:
        ValueError: a launch reads a moving tensor through another tensor.
    """

    def __init__(self, launches: Sequence[Launch], moving: tuple[torch.Tensor, ...]) -> None:
        numbers = {id(tensor): number for number, tensor in enumerate(moving)}
        memories = {tensor.untyped_storage()._cdata for tensor in moving}
        # Positions of moving tensors among the arguments of each launch.
        self._launches = []
        for item in launches:
            moved = {at: numbers[id(arg)] for at, arg in enumerate(item.args) if id(arg) in numbers}
            others = (arg for at, arg in enumerate(item.args) if at not in moved and isinstance(arg, torch.Tensor))
            if any(arg.untyped_storage()._cdata in memories for arg in others):
                raise ValueError(f"{item.kernel.__name__} reads a moving tensor through another tensor")
            self._launches.append((item, moved))
        self._cells = [ctypes.c_uint64() for _ in moving]
        driver = _driver()
        bound = [] if driver is None else [driver.bind(item, moved, self._cells) for item, moved in self._launches]
        self._driver = None if None in bound else driver
        self._bound = [item for item in bound if item is not None]

    def run(self, *tensors: torch.Tensor) -> None:
        """Launch with the addresses of ``tensors``, given in the order of the moving ones.

        Raises:
            RuntimeError: the driver refuses a launch.
        """
        driver = self._driver
        if driver is None or driver.watched():
            for item, moved in self._launches:
                args = [tensors[moved[at]] if at in moved else arg for at, arg in enumerate(item.args)]
                item.kernel[item.grid](*args, **item.options)
            return
        for cell, tensor in zip(self._cells, tensors):  # noqa: B905 - this is every step's path
            cell.value = tensor.data_ptr()
        call = driver.call
        for config, function, cells, null, _ in self._bound:
            if error := call(config, function, cells, null):
                raise RuntimeError(f"the CUDA driver could not launch a kernel: error {error}")


class _Config(ctypes.Structure):
    """The driver's ``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


_NUMBERS = {"i1": ctypes.c_bool, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}
"""Triton's types of numbers."""

_UNUSUAL = {"num_ctas": 1, "launch_cooperative_grid": False, "launch_pdl": False}
_UNUSUAL |= {"global_scratch_size": 0, "profile_scratch_size": 0}
"""Metadata of a compiled kernel, with the values at which a launch needs no more than grid, block and parameters."""

_MOST_SHARED = 228 * 1024
"""Bytes of shared memory of a program that need no permission."""


class _Driver:
    """The CUDA driver, as Triton uses it.

    Args:
        active: Triton's driver.
        runtime: Triton's settings, which have the hooks.
    """

    def __init__(self, active: Any, runtime: Any) -> None:
        self._device: Callable[[], int] = active.get_current_device
        self._stream: Callable[[int], int] = active.get_current_stream
        self._runtime = runtime
        self._hooks = runtime.launch_enter_hook, runtime.launch_exit_hook
        self.call = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx

    def place(self) -> tuple[int, int]:
        device = self._device()
        return device, self._stream(device)

    def watched(self) -> bool:
        """True if a hook wants to see launches."""
        enter, leave = self._hooks
        runtime = self._runtime
        if runtime.launch_enter_hook is not enter or runtime.launch_exit_hook is not leave:
            return True
        return bool(enter.calls or leave.calls)

    def bind(self, item: Launch, moved: dict[int, int], moving: list[ctypes.c_uint64]) -> Any:
        """Return what the driver needs for a launch; None if this launch needs more than a plan knows of."""
        kernel, compiled = item.kernel, item.compiled
        if compiled is None or kernel.pre_run_hooks:
            return None
        signature, metadata = compiled.src.signature, compiled.metadata
        if any(getattr(metadata, name, None) != value for name, value in _UNUSUAL.items()):
            return None
        if metadata.shared > _MOST_SHARED or [*signature] != [*kernel.arg_names]:
            return None
        cells: list[Any] = []
        for at, (kind, arg) in enumerate(zip(signature.values(), item.args, strict=False)):
            if kind == "constexpr":
                continue
            if kind.startswith("*"):
                cells.append(moving[moved[at]] if at in moved else ctypes.c_uint64(arg.data_ptr()))
            elif kind in _NUMBERS:
                cells.append(_NUMBERS[kind](arg))
            else:
                return None
        cells += [ctypes.c_uint64(), ctypes.c_uint64()]  # Triton's scratch memory, which these kernels do not use
        addresses = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
        config = _Config(shared=metadata.shared, stream=self.place()[1])
        config.grid[:] = (*item.grid, 1, 1)[:3]
        config.block[:] = (32 * metadata.num_warps, 1, 1)
        given = (ctypes.byref(config), ctypes.c_void_p(compiled.function), addresses, None)
        return *given, cells


@cache
def _driver() -> _Driver | None:
    try:
        from triton import knobs
        from triton.runtime import driver

        cuda = driver.active.get_current_target().backend == "cuda"
        return _Driver(driver.active, knobs.runtime) if cuda else None
    except Exception:  # no Triton, an interpreter without a GPU, another generation of either
        return None
