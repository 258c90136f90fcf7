"""The only module that launches Triton kernels, and repeats a step's launches with other addresses.

Half of the host's time of a launch is Triton's Python. A :class:`LaunchPlan` has what the driver needs, prepared once,
and calls ``cuLaunchKernelEx``, which has been stable since CUDA 11.8; :func:`launch` does so for kernels that it knows.
Triton launches where that cannot be done: while hooks watch launches, on other devices than NVIDIA's, under Triton's
interpreter, and for kernels with unusual demands.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
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


class _Thread(threading.local):
    """State of each thread: another thread may launch between the writing of parameters and their launch."""

    def __init__(self) -> None:
        self.recording: list[Launch] | None = None
        self.bindings: dict[Any, _Bound | None] = {}


_thread = _Thread()

MOST_KNOWN = 1024  # most launches that a thread remembers


def launch(kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], **options: Any) -> None:
    """Launch a kernel. All functions of :mod:`lpkit.kernels` do so here, and take new memory from ``torch.empty`` only:
    then the launches of a step can be repeated with other addresses, without the Python of these functions.

    Args:
        kernel: compiled by ``triton.jit``.
        grid: number of programs by dimension, integers.
        args: of the kernel, tensors and numbers, in order.
        options: the kernel's ``constexpr`` arguments, and Triton's options such as ``num_warps``.
    """
    driver, recording = _driver(), _thread.recording
    if recording is not None:
        recording.append(Launch(kernel, grid, args, options, kernel[grid](*args, **options)))
        return
    special = _specialized(kernel)
    if driver is None or special is None or driver.watched() or 0 in grid:
        kernel[grid](*args, **options)
        return
    device, stream = driver.place()
    key, values = _key(args, special)
    key += id(kernel), device, *options.values()
    bindings = _thread.bindings
    bound = bindings.get(key)
    if bound is not None:
        bound.config.grid[: len(grid)] = grid
        bound.config.stream = stream
        for cell, value in zip(bound.cells, values):  # noqa: B905 - this is every launch's path
            cell.value = value
        driver.launch((bound,))
        return
    compiled = kernel[grid](*args, **options)
    if key not in bindings and len(bindings) < MOST_KNOWN:
        bindings[key] = driver.bind(Launch(kernel, grid, args, options, compiled), {})


def _key(args: tuple[Any, ...], specialized: tuple[bool, ...]) -> tuple[tuple[Any, ...], list[Any]]:
    """Return what Triton compiles a kernel for, and its parameters: addresses and numbers."""
    key: list[Any] = []
    values: list[Any] = []
    for arg, special in zip(args, specialized):  # noqa: B905
        kind = type(arg)
        if kind is int:
            values.append(arg)
            key.append(arg if special else -(2**31) <= arg < 2**31)
        elif kind is float or kind is bool:
            values.append(arg)
            key.append(kind)
        else:
            address = arg.data_ptr()
            values.append(address)
            key.append((arg.dtype, address & 15) if special else arg.dtype)
    return tuple(key), values


def _specialized(kernel: Any) -> tuple[bool, ...] | None:
    """Tell for each argument if Triton compiles for its value or alignment; None for what stands in for a kernel."""
    remembered = _special.get(id(kernel))  # a kernel's own hash takes a lock
    if remembered is None:
        params = getattr(kernel, "params", None)
        remembered = kernel, None if params is None else tuple(not item.do_not_specialize for item in params)
        _special[id(kernel)] = remembered
    return remembered[1]


_special: dict[int, tuple[Any, tuple[bool, ...] | None]] = {}


@contextmanager
def by_triton() -> Iterator[None]:
    """Let Triton launch everything, in all threads, so that observers of its functions see it."""
    _observers.append(None)
    try:
        yield
    finally:
        _observers.pop()


_observers: list[None] = []


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Record this thread's launches."""
    launches: list[Launch] = []
    _thread.recording = launches
    try:
        yield launches
    finally:
        _thread.recording = None


def place() -> Callable[[], tuple[int, int]]:
    """Return a reader of the current device and stream. A plan is for one stream, as its steps share memory."""
    driver = _driver()
    return (lambda: (0, 0)) if driver is None else driver.place


class LaunchPlan:
    """Launches that are repeated with other addresses of some of their tensors; it keeps all others alive.

    Args:
        launches: recorded on this device and stream.
        moving: the tensors whose addresses change. Each step gives tensors of the same type, strides, and alignment.

    Attributes:
        bytes: memory of the tensors that it keeps alive.

    Raises:
        ValueError: a launch reads a moving tensor through another tensor.
    """

    def __init__(self, launches: Sequence[Launch], moving: tuple[torch.Tensor, ...]) -> None:
        every = [ctypes.c_uint64(tensor.data_ptr()) for tensor in moving]
        numbers = {id(tensor): number for number, tensor in enumerate(moving)}
        memories = {tensor.untyped_storage()._cdata for tensor in moving}
        self._cell, *self._cells = every
        self._others = moving[1:]  # whose addresses the cells have
        self._driver = _driver()
        self._launches: list[tuple[Launch, dict[int, int]]] = []  # and positions of moving tensors among the arguments
        self._bound: list[_Bound] = []
        self.bytes = 0
        for item in launches:
            moved = {at: numbers[id(arg)] for at, arg in enumerate(item.args) if id(arg) in numbers}
            kept = tuple(None if at in moved else arg for at, arg in enumerate(item.args))
            tensors = [arg for arg in kept if isinstance(arg, torch.Tensor)]
            if any(tensor.untyped_storage()._cdata in memories for tensor in tensors):
                raise ValueError(f"{item.kernel.__name__} reads a moving tensor through another tensor")
            self.bytes += sum(tensor.nbytes for tensor in tensors)
            self._launches.append((item._replace(args=kept), moved))
            if self._driver is not None:
                bound = self._driver.bind(item, {at: every[number] for at, number in moved.items()})
                if bound is None:
                    self._driver = None
                else:
                    self._bound.append(bound)

    def run(self, first: torch.Tensor, others: tuple[torch.Tensor, ...] = (), address: int = 0) -> None:
        """Launch with the addresses of other tensors in place of the moving ones.

        Args:
            first: in place of the first, the logits.
            others: in place of the others; kept until the next run, since an object that comes again is where it was.
            address: of ``first``, if known.

        Raises:
            RuntimeError: the driver refuses a launch.
        """
        driver = self._driver
        if driver is None or driver.watched():
            tensors = first, *others
            for item, moved in self._launches:
                args = [tensors[moved[at]] if at in moved else arg for at, arg in enumerate(item.args)]
                item.kernel[item.grid](*args, **item.options)
            return
        self._cell.value = address or first.data_ptr()
        if others is not self._others:
            for cell, tensor, before in zip(self._cells, others, self._others):  # noqa: B905 - as many, in each step
                if tensor is not before:
                    cell.value = tensor.data_ptr()
            self._others = others
        driver.launch(self._bound)


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


class _Bound(NamedTuple):
    """A launch as the driver takes it.

    Attributes:
        config: grid, block, memory and stream.
        given: the arguments of ``cuLaunchKernelEx``.
        cells, compiled: memory of each argument, and the kernel, whose end would unload it.
    """

    config: _Config
    given: tuple[Any, ...]
    cells: list[Any]
    compiled: Any


_NUMBERS = {"i1": ctypes.c_bool, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}
"""Triton's types of numbers."""

_UNUSUAL = {"num_ctas": 1, "launch_cooperative_grid": False, "launch_pdl": False}
_UNUSUAL |= {"global_scratch_size": 0, "profile_scratch_size": 0}
"""Metadata of a compiled kernel, with the values at which a launch needs no more than grid, block and parameters."""

_NO_CONTEXT = 201  # the driver's ``CUDA_ERROR_INVALID_CONTEXT``

_MOST_SHARED = 228 * 1024
"""Bytes of shared memory that a program gets; above 48 KiB Triton asks for them when it loads the kernel."""


class _CudaDriver:
    """The CUDA driver, as Triton uses it.

    Args:
        active: Triton's driver.
        runtime: Triton's settings, which have the hooks.
    """

    def __init__(self, active: Any, runtime: Any) -> None:
        self._device: Callable[[], int] = active.get_current_device
        self._stream: Callable[[int], int] = active.get_current_stream
        self._runtime = runtime
        self._enter, self._leave = runtime.launch_enter_hook, runtime.launch_exit_hook
        # To these lists hooks are added; where Triton has none, it launches everything.
        self._calls = getattr(self._enter, "calls", [None]), getattr(self._leave, "calls", [None]), _observers
        self._call = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx

    def place(self) -> tuple[int, int]:
        device = self._device()
        return device, self._stream(device)

    def watched(self) -> bool:
        """True if a hook, or an observer of Triton's functions, wants to see launches."""
        now, (first, second, third) = self._runtime, self._calls
        replaced = now.launch_enter_hook is not self._enter or now.launch_exit_hook is not self._leave
        return replaced or bool(first or second or third)

    def launch(self, bounds: Iterable[_Bound]) -> None:
        """Launch with the present values of the cells.

        Raises:
            RuntimeError: the driver refuses.
        """
        call = self._call
        for bound in bounds:
            error = call(*bound.given)
            if error == _NO_CONTEXT:  # this thread has not used the GPU yet, except for memory that torch had cached
                torch.cuda.synchronize()
                error = call(*bound.given)
            if error:
                raise RuntimeError(f"the CUDA driver could not launch a kernel: error {error}")

    def bind(self, item: Launch, moving: dict[int, Any]) -> _Bound | None:
        """Return a launch on the current stream as the driver takes it, with the cells of ``moving`` for arguments at
        these positions; None if it needs more than grid, block and parameters."""
        kernel, compiled = item.kernel, item.compiled
        if compiled is None or kernel.pre_run_hooks or 0 in item.grid:
            return None
        signature, metadata = compiled.src.signature, compiled.metadata
        if any(getattr(metadata, name, None) != value for name, value in _UNUSUAL.items()):
            return None
        if metadata.shared > _MOST_SHARED or [*signature] != [*kernel.arg_names]:
            return None
        cells: list[Any] = []
        parameters: list[Any] = []
        for at, (kind, arg) in enumerate(zip(signature.values(), item.args, strict=False)):
            pointer = kind.startswith("*")
            if not pointer and kind not in (*_NUMBERS, "constexpr"):
                return None
            value = arg.data_ptr() if pointer else arg
            cells.append(moving[at] if at in moving else _NUMBERS.get(kind, ctypes.c_uint64)(value))
            if kind != "constexpr":  # the kernel was compiled for this number
                parameters.append(cells[-1])
        spare = ctypes.c_uint64()  # for Triton's scratch memory, which these kernels do not use
        addresses = [ctypes.addressof(cell) for cell in (*parameters, spare, spare)]
        config = _Config(shared=metadata.shared, stream=self.place()[1])
        config.grid[:] = (*item.grid, 1, 1)[:3]
        config.block[:] = (32 * metadata.num_warps, 1, 1)
        array = (ctypes.c_void_p * len(addresses))(*addresses)
        # References, which a call takes as they are.
        function = ctypes.byref(ctypes.c_char.from_address(compiled.function))
        given = (ctypes.byref(config), function, ctypes.byref(array), None)
        return _Bound(config, given, [*cells, spare], compiled)


@cache
def _driver() -> _CudaDriver | None:
    try:
        from triton import knobs
        from triton.runtime import driver

        cuda = driver.active.get_current_target().backend == "cuda"
        return _CudaDriver(driver.active, knobs.runtime) if cuda else None
    except Exception:  # no Triton, an interpreter without a GPU, another generation of either
        return None
