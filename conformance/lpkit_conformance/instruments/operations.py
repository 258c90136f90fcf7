"""Cost of tensor operations without timing: their number, the waits, the memory allocated and moved."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from lpkit.kernels import launching
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from lpkit_conformance.instruments.dispatch import Watch
from lpkit_conformance.instruments.meta_kernels import Kernel
from lpkit_conformance.instruments.values import SeeValues

SYNCS = {
    "_local_scalar_dense": "item",
    "item": "item",
    "is_nonzero": "bool",
    "resolve_neg": "tolist",  # also numpy(): what is dispatched before the values are read
    "nonzero": "nonzero",
    "masked_select": "masked_select",
    "_unique2": "unique",
    "unique_dim": "unique",
    "boolean index": "boolean index",
}
"""Operations that make the host wait for the device, as dispatched, and what an author calls them."""

INDEXING = frozenset({"index", "index_put", "index_put_"})
"""Operations that may be given masks."""

SELECTING = frozenset(
    {*INDEXING, "gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "index_select", "index_copy_"}
    | {"scatter_reduce", "scatter_reduce_", "index_fill_", "index_add_", "select", "slice"}
)
"""Operations that touch only some elements of what they are given."""

COPIES = frozenset({"_to_copy", "to", "copy_"})
"""Operations that may move bytes between devices."""


class CountOperations(Watch):
    """Counts what reaches the dispatcher, by operation name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.counts[name] += 1
        if name in INDEXING and any(item is not None and item.dtype == torch.bool for item in args[1]):
            # One value written through a mask is a masked fill, which does not wait.
            self.counts["boolean index"] += name == "index" or args[2].numel() > 1
        return func(*args, **(kwargs or {}))


class MeasureOperations(CountOperations):  # type: ignore[no-untyped-call]
    """Counts operations, and the memory that they allocate and move.

    Attributes:
        views: operations that only create another tensor on the same memory; they launch no kernel.
        elements: sum over operations of the elements of the largest tensor, or of the selection.
        peak: the most bytes of new tensors that were held at the same time; memory within an operation is not counted.
        to_device: bytes copied from the host's memory to a device's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.views = self.elements = self.peak = self.to_device = 0
        self._held: list[tuple[StorageWeakRef, int]] = []

    @property
    def launches(self) -> int:
        """Operations that compute or copy something."""
        return self.counts.total() - self.counts["boolean index"] - self.views

    @property
    def syncs(self) -> dict[str, int]:
        """Calls that made the host wait, named as authors write them, with their number."""
        counts: Counter[str] = Counter()
        for name, called in SYNCS.items():
            if self.counts[name]:
                counts[called] += self.counts[name]
        return dict(counts)

    def __enter__(self) -> MeasureOperations:
        self._values = SeeValues(lambda: self.to_device, self.sent)
        self._values.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._values.__exit__(*error)  # type: ignore[no-untyped-call]

    def sent(self, size: int) -> None:
        """Bytes were copied to a device."""
        self.to_device += size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        given = _tensors((args, kwargs or {}))
        made = _tensors(result)
        storages = {tensor.untyped_storage()._cdata for tensor in given}
        fresh = [tensor for tensor in made if tensor.untyped_storage()._cdata not in storages]
        view = bool(made) and not fresh and not func._schema.is_mutable
        self.views += view
        if fresh:
            self._held = [item for item in self._held if not item[0].expired()]  # type: ignore[no-untyped-call]
            self._held += [(StorageWeakRef(tensor.untyped_storage()), tensor.nbytes) for tensor in fresh]  # type: ignore[no-untyped-call]
            self.peak = max(self.peak, sum(size for _, size in self._held))
        name = func.overloadpacket.__name__
        if not view:
            touched = [*given[1:], *fresh] if name in SELECTING else [*given, *made]
            self.elements += max((tensor.numel() for tensor in touched), default=0)
        if name in COPIES and made and given:
            source = given[1] if name == "copy_" else given[0]
            if source.device.type == "cpu" != made[0].device.type:
                self.to_device += source.nbytes
        for index in indices_of_the_host(name, args):
            self.sent(index.nbytes)
        return result


NO_LAUNCH = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach_", "scalar_tensor"}
)
"""Operations that only take memory or change what autograd sees; numbers that are written are arguments on CUDA."""


class CountLaunches(MeasureOperations):  # type: ignore[no-untyped-call]
    """Counts what a device is asked for: operations that compute or copy there, and Triton's kernels.

    Args:
        device: of the tensors; what the host does with its own launches nothing.

    Attributes:
        operations: of torch, by name.
        kernels: of Triton, by name.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()
        self._type = device.type

    @property
    def launches(self) -> int:
        return self.operations.total() + self.kernels.total()

    def sent(self, size: int) -> None:
        super().sent(size)
        self.operations["to"] += 1

    def __enter__(self) -> CountLaunches:
        self._patches = ExitStack()
        self._patches.enter_context(launching.by_triton())
        runtime = getattr(sys.modules.get("triton"), "runtime", None)
        for kind in (Kernel, *([runtime.JITFunction] if runtime is not None else [])):
            self._patches.enter_context(mock.patch.object(kind, "run", self._counted(kind.run)))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    def _counted(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def counted(function: Any, *args: Any, **kwargs: Any) -> Any:
            self.kernels[kwargs.get("RULE", function).__name__.strip("_")] += 1  # a rule has a kernel of its own
            return run(function, *args, **kwargs)

        return counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        views = self.views
        result = super().__torch_dispatch__(func, types, args, kwargs)
        name = func.overloadpacket.__name__
        taking_part = (tensor.device.type == self._type for tensor in _tensors((result, args, kwargs)))
        if self.views == views and name not in NO_LAUNCH and any(taking_part):
            self.operations[name] += 1
        return result


def indices_of_the_host(name: str, args: Sequence[Any]) -> list[torch.Tensor]:
    """Return the host tensors by which the operation ``name`` indexes a device's tensor: each is copied there first."""
    if name not in INDEXING or args[0].device.type == "cpu":
        return []
    return [index for index in args[1] if index is not None and index.device.type == "cpu"]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [item for item in tree_leaves(values) if isinstance(item, torch.Tensor)]
