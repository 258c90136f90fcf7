"""The one place that launches Triton kernels."""

from __future__ import annotations

from typing import Any


def launch(kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], **options: Any) -> None:
    """Launch a kernel. All functions of :mod:`lpkit.kernels` do so here, and take new memory from ``torch.empty`` only:
    then the launches of a step can be repeated with other addresses, without the Python of these functions.

    Args:
        kernel: compiled by ``triton.jit``.
        grid: number of programs by dimension, integers.
        args: of the kernel, tensors and numbers, in order.
        options: the kernel's ``constexpr`` arguments, and Triton's options such as ``num_warps``.
    """
    kernel[grid](*args, **options)
