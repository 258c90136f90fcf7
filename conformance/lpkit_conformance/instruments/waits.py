"""Finds calls that make the host wait for the device, on a machine without a device."""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode

from lpkit_conformance.instruments.dispatch import Watch
from lpkit_conformance.instruments.edits import author_line
from lpkit_conformance.instruments.operations import COPIES, SYNCS, CountOperations, indices_of_the_host
from lpkit_conformance.instruments.values import SUBSCRIPTS, bytes_of_values

Wait = tuple[str, str]
"""A call that waits, as its author writes it, and the author's line."""


class NoteReads(CountOperations):  # type: ignore[no-untyped-call]
    """Records operations that read values from the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[Wait] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self.counts.copy()
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.waits += [(SYNCS[name], author_line()) for name in self.counts - before if name in SYNCS]
        return result


class NoteSends(TorchFunctionMode):
    """Records the author's calls that send host values to the meta device and wait for the transfer.

    On CUDA, torch waits in each copy that is not ``non_blocking``. The copy runs after all earlier work, including the
    model's. Calls that make a tensor of a list wait, and so do subscripts that are lists or host tensors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[Wait] = []
        self._copies = _CountCopies()

    def __enter__(self) -> NoteSends:
        self._copies.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._copies.__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self._copies.count
        result = func(*args, **(kwargs or {}))
        if (self._copies.count > before or bytes_of_values(func, args, result)) and (line := author_line()):
            self.waits.append(("indexing from the host" if func in SUBSCRIPTS else func.__name__, line))
        return result


class _CountCopies(Watch):  # type: ignore[no-untyped-call]
    """Counts copies to the meta device that wait, and indices that are on the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False), **(kwargs or {}))
        if name in COPIES and result.is_meta and not given.get("non_blocking"):
            source = given["src"] if name == "copy_" else args[0]
            self.count += source.device.type == "cpu"
        self.count += len(indices_of_the_host(name, args))
        return result
