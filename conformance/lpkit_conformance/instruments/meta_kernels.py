"""Fused kernels for torch's meta device, which compute nothing: with them a step asks it for what it asks a GPU for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from lpkit import kernels
from lpkit.kernels import fused

META = torch.device("meta")


class Kernel:
    """Stands in for a function that Triton compiles, as its ``JITFunction`` does for what it is asked for."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.__name__ = function.__name__

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return partial(self.run, grid=grid)

    def run(self, *args: Any, **kwargs: Any) -> None:
        """A launch."""


@contextmanager
def fused_on_meta() -> Iterator[None]:
    """Within it, functions of :mod:`lpkit.kernels` take on the meta device the way that they take on CUDA.

    :class:`~lpkit_conformance.instruments.operations.CountLaunches` counts what they launch.
    """
    whole, few = _modules()
    originals = fused.prepare, fused.prepare_few
    with (
        mock.patch.object(fused, "prepare", lambda device: whole if device == META else originals[0](device)),
        mock.patch.object(fused, "prepare_few", lambda device: few if device == META else originals[1](device)),
    ):
        yield


@cache
def _modules() -> tuple[ModuleType, ModuleType]:
    """The two sets of kernels, defined with a stand-in for Triton."""
    with (
        mock.patch.dict(sys.modules, _triton()),  # not for longer: torch looks whether there is a Triton
        mock.patch.dict(vars(kernels)),
    ):
        for name in (*fused.WHOLE_ROWS, *fused.FEW):
            sys.modules.pop(name, None)
        return fused.together(fused.WHOLE_ROWS), fused.together(fused.FEW)


def _triton() -> dict[str, ModuleType]:
    """Modules with what the SDK's kernels use of Triton where they are defined and launched."""

    class Constant:
        def __init__(self, value: Any) -> None:
            self.value = value

    def jit(function: Any = None, **_: Any) -> Any:
        return Kernel if function is None else Kernel(function)

    triton, language = ModuleType("triton"), ModuleType("triton.language")
    vars(triton).update(jit=jit, cdiv=lambda number, by: -(-number // by), language=language)
    vars(language).update(constexpr=Constant)
    return {"triton": triton, "triton.language": language}
