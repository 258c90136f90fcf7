"""Finds the author's line that edited a row of logits, or that wrote one element of a row twice."""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from lpkit_conformance.instruments.author_lines import is_authors
from lpkit_conformance.instruments.dispatch import Watch

CALLERS = str(Path(__file__).parents[1] / "hosts")
"""Modules that call the plugin: a stack above their frames belongs to the host's callers."""


def author_frames() -> Iterator[FrameType]:
    """Yield the author's frames in this call of the plugin, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith(CALLERS):
        if is_authors(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def author_line() -> str:
    """Return ``file:line`` of the author's innermost frame in this call of the plugin; empty if the call has none."""
    return next((f"{frame.f_code.co_filename}:{frame.f_lineno}" for frame in author_frames()), "")


class NoteEdits(Watch):  # type: ignore[no-untyped-call]
    """Records the author's lines while tensor operations run.

    Args:
        logits: of one call of ``apply``.
        row: the row to follow.

    Attributes:
        edited: the last line that changed this row in place.
        wrote: the last line that wrote to the logits at all.
        computed: the last line that ran an operation on tensors.
        made: the last line that made other logits of this shape, or wrote to those that it made last.
        spoilt: the first line whose operation made NaN of numbers.
        spoilt_by: the line's variables: the value that goes with the first NaN, and the number of elements.
        values: the author's variables when the row was changed in place.
    """

    def __init__(self, logits: torch.Tensor, row: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._logits, self._row = logits, row
        self._storage = logits.untyped_storage().data_ptr()
        self.edited = self.wrote = self.computed = self.made = self.spoilt = ""
        self._made = 0
        self.spoilt_by: dict[str, tuple[float, int]] = {}
        self.values: dict[str, Any] = {}
        self._latest: dict[str, Any] = {}

    @property
    def line(self) -> str:
        """The line that made the row what it is, as far as it is known."""
        return self.edited or self.wrote or self.computed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        line = author_line()
        self.computed = line or self.computed
        self._latest = variables(next(author_frames(), None)) or self._latest
        written = _storages((args, kwargs or {})) if func._schema.is_mutable else ()
        writes = self._storage in written
        # What lpkit writes back is what the author's last operation computed.
        line = line or self.computed
        before = self._logits[self._row].clone() if writes and self._row < len(self._logits) else None
        fine = not self.spoilt and not any(map(_has_nan, tree_leaves((args, kwargs or {}))))
        result = func(*args, **(kwargs or {}))
        if fine and _has_nan(result):
            self.spoilt, self.spoilt_by = line, dict(_given(tree_leaves((args, kwargs or {})), result))
        if getattr(result, "shape", None) == self._logits.shape and self._storage not in _storages(result):
            (self._made,), self.made = _storages(result), line
        self.made = line if self._made and self._made in written else self.made
        if writes:
            self.wrote = line or self.wrote
            if before is not None and not torch.equal(before, self._logits[self._row]):
                self.edited, self.values = line or self.edited, self._latest
        return result


def _storages(values: Any) -> list[int]:
    return [item.untyped_storage().data_ptr() for item in tree_leaves(values) if isinstance(item, torch.Tensor)]


def variables(frame: FrameType | None) -> dict[str, Any]:
    """Return the variables of a function, and the attributes of its ``self``."""
    held = frame.f_locals if frame else {}
    return {**held, **{f"self.{name}": item for name, item in getattr(held.get("self"), "__dict__", {}).items()}}


def _given(operands: Sequence[Any], result: torch.Tensor) -> Iterator[tuple[str, tuple[float, int]]]:
    """Yield the variables of the line, and others that an operation gets, as :attr:`NoteEdits.spoilt_by` has them."""
    first = result.isnan().nonzero()[0].tolist()
    places = {(item.data_ptr(), item.shape) for item in operands if isinstance(item, torch.Tensor)}
    file, _, number = author_line().rpartition(":")
    words = re.findall(r"[\w.]+", linecache.getline(file, int(number or 0)))
    for name, value in variables(next(author_frames(), None)).items():
        if isinstance(value, torch.Tensor) and (name in words or (value.data_ptr(), value.shape) in places):
            with contextlib.suppress(RuntimeError):  # a reduction
                yield name, (float(value.expand(result.shape)[tuple(first)]), value.numel())


def _has_nan(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.isnan().any())


class NoteHolders(Watch):  # type: ignore[no-untyped-call]
    """Looks for ids that the author's operations get or make, in which a row has a token and any of the others.

    Args:
        token, others: ids.
        instead: the id that replaces the others there; None: they stay.

    Attributes:
        holder: the name of the tensor, or the line's text, ``file:line``, and how often the others are in the row, for
            the first such operation; empty, and 0, if there is none.
    """

    def __init__(self, token: int, others: Sequence[int], instead: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._token, self._others, self._instead = token, torch.tensor(others), instead
        self.holder = ("", "", 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        caller = sys._getframe(1)
        values = tree_leaves((result, args, kwargs or {})) if is_authors(caller.f_code.co_filename) else ()
        for value in filter(_is_ids, values):
            others = torch.isin(value, self._others.to(value.device))
            held = others.sum(-1)[(value == self._token).any(-1)]
            if not self.holder[1] and bool(held.any()):
                line = linecache.getline(caller.f_code.co_filename, caller.f_lineno).strip()
                made = re.match(r"(\w+) = ", line) if value is result else None
                names = [name for name, item in variables(caller).items() if item is value]
                self.holder = made[1] if made else [*names, line][0], author_line(), int(held.max())
            if self._instead is not None and bool(held.any()):
                value.masked_fill_(others, self._instead)
        return result


def _is_ids(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64) and value.ndim > 0


class NoteRepeats(Watch):  # type: ignore[no-untyped-call]
    """Looks for one operation that writes an element of a row twice, with different values: a GPU keeps any of them.

    Args:
        vocab_size: tensors whose last dimension has this size are rows, of logits or of a mask.

    Attributes:
        line: ``file:line`` of the author's first such operation; empty if there is none.
        token: the token id of the element.
        values: the values written to it.
    """

    def __init__(self, vocab_size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._vocab_size = vocab_size
        self.line, self.token, self.values = "", 0, (0.0, 0.0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        if not self.line and name in ("scatter", "index_put") and args[0].shape[-1:] == (self._vocab_size,):
            elements = torch.arange(args[0].numel(), device=args[0].device).view(args[0].shape)
            if name == "index_put" and not (args[3:] and args[3]):
                self._look(elements[tuple(slice(None) if ids is None else ids for ids in args[1])], args[2])
            elif name == "scatter" and isinstance(args[3], torch.Tensor) and len(args) == 4:
                self._look(elements.gather(args[1], args[2]), args[3][tuple(map(slice, args[2].shape))])
        return func(*args, **(kwargs or {}))

    def _look(self, elements: torch.Tensor, values: torch.Tensor) -> None:
        """``elements``: numbers of the elements that get these values, which broadcast to them."""
        written, order = elements.flatten().sort(stable=True)
        given = values.broadcast_to(elements.shape).flatten()[order]
        twice = (written[1:] == written[:-1]) & (given[1:] != given[:-1])
        if bool(twice.any()):
            n = int(twice.to(torch.int8).argmax())
            self.line, self.token = author_line(), int(written[n]) % self._vocab_size
            self.values = float(given[n]), float(given[n + 1])
