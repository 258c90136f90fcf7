"""The device that the CPU is compared with: a GPU where available, else the CPU itself, on a sample.

So the same code runs everywhere and stays tested; only a run on a GPU proves anything about GPUs. With
``TRITON_INTERPRET=1`` and a Triton, :func:`on_both` has the kernels interpreted on the CPU, in place of a GPU.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import torch
from lpkit import kernels
from lpkit.kernels import fused
from lpkit_conformance.processes import gpu

T = TypeVar("T")

HAVE_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if HAVE_GPU else "cpu")
CPU = torch.device("cpu")
INTERPRETED = not HAVE_GPU and os.environ.get("TRITON_INTERPRET") == "1"


def all_or(items: Sequence[T], sample: int, on_gpu: int | None = None) -> list[T]:
    """All items, or ``on_gpu`` of them, where there is a GPU, else ``sample`` of them, spread evenly."""
    most = (len(items) if on_gpu is None else on_gpu) if HAVE_GPU else sample
    return list(items)[:: max(len(items) // most, 1)][:most]


_child: ProcessPoolExecutor | None = None


def in_a_child(function: Callable[..., T], *arguments: Any) -> T:
    """The function's result in a process that is ended with its GPU: after a failed assertion no call reaches that."""
    global _child
    if not HAVE_GPU:
        return function(*arguments)
    if _child is None:
        spawned = multiprocessing.get_context("spawn")
        _child = ProcessPoolExecutor(1, spawned, initializer=torch.set_num_threads, initargs=(1,))
    result, error = _child.submit(_with_the_gpus_error, function, arguments).result()
    if error:
        _child.shutdown()
        _child = None
    return result


def _with_the_gpus_error(function: Callable[..., T], arguments: tuple[Any, ...]) -> tuple[T, str]:
    return function(*arguments), gpu.error_of(DEVICE)


Computed = Sequence[torch.Tensor]


def on_both(compute: Callable[[torch.device], Computed]) -> tuple[Computed, Computed]:
    """Return the results of the device's kernels, moved to the CPU, and the CPU's own results."""
    with _kernels():
        found = [item.cpu() for item in compute(DEVICE)]
    return found, compute(CPU)


def same_bits(found: Computed, expected: Computed) -> bool:
    """Return True if all tensors have the same type and shape, and equal bits, NaN and -0.0 included."""
    assert len(found) == len(expected)
    pairs = list(zip(found, expected, strict=True))
    assert [(one.dtype, one.shape) for one, _ in pairs] == [(other.dtype, other.shape) for _, other in pairs]
    return all(torch.equal(*(item.contiguous().view(torch.uint8) for item in pair)) for pair in pairs)


@contextmanager
def _kernels() -> Iterator[None]:
    if INTERPRETED:
        whole, few = (fused.together(names) for names in (fused.WHOLE_ROWS, fused.FEW))
        with (
            mock.patch.object(fused, "prepare", lambda device: whole),
            mock.patch.object(fused, "prepare_few", lambda device: few),
        ):
            yield
        return
    for prepare in (kernels.prepare, kernels.prepare_few):
        assert not HAVE_GPU or prepare(DEVICE) is not None, "no Triton kernels on this GPU"
    yield
