"""An author's own ``edit`` as one Triton kernel: elementwise operations on columns and on logits at some ids.

Torch itself tells types and shapes of all that is computed, by tensors without memory. Other operations are refused.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import torch

MOST_COLUMNS = 5  # that one kernel reads


class NotRecordableError(Exception):
    """A step does more than kernels can do by slot."""


_CALCULATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (operator.add, "{} + {}"),
    "sub": (operator.sub, "{} - {}"),
    "mul": (operator.mul, "{} * {}"),
    "div": (operator.truediv, "tl.div_rn({}, {})"),
    "abs": (operator.abs, "tl.abs({})"),
    "maximum": (torch.maximum, "tl.maximum({}, {}, tl.PropagateNan.ALL)"),
    "minimum": (torch.minimum, "tl.minimum({}, {}, tl.PropagateNan.ALL)"),
    "at_least": (lambda values, least: values.clamp(min=least), "tl.where({0} < {1}, {1}, {0})"),
    "at_most": (lambda values, most: values.clamp(max=most), "tl.where({0} > {1}, {1}, {0})"),
}
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and_": "&", "or_": "|"}
OPERATIONS = {
    **_CALCULATIONS,
    **{name: (getattr(operator, name), f"{{}} {sign} {{}}") for name, sign in _SIGNS.items()},
    "where": (lambda values, chosen, others: torch.where(chosen, values, others), "tl.where({1}, {0}, {2})"),
    "masked_fill": (torch.Tensor.masked_fill, "tl.where({1}, {2}, {0})"),
    "unsqueeze": (torch.Tensor.unsqueeze, ""),
    "earlier": (lambda values: values[:, :-1], ""),
    "later": (lambda values: values[:, 1:], ""),
    "gather": (torch.gather, ""),
}
"""Of each operation what torch does, and its text in Triton."""

_TYPES = {torch.float32: "tl.float32", torch.int64: "tl.int64", torch.bool: "tl.int1"}
_SHAPES = _ROW, _COLUMN, _LIST, _PART = torch.Size([5]), torch.Size([5, 1]), torch.Size([5, 9]), torch.Size([5, 8])
_TOKEN = "text_at(text, place, inside & (place < total), -1, DRAFTS)"
_HISTORY = {
    "prompt_len": (torch.int64, _ROW, "(prompt + place * 0).to(tl.int64)"),
    "total_len": (torch.int64, _ROW, "(total + place * 0).to(tl.int64)"),
    "tokens": (torch.int64, _LIST, f"{_TOKEN}.to(tl.int64)"),
    "is_output": (torch.bool, _LIST, f"(place >= prompt) & ({_TOKEN} >= 0)"),
}
"""Type, shape and text of what a step reads of histories."""


def evaluate(form: Any, leaf: Callable[..., Any]) -> Any:
    """Compute a form with torch's operations; ``leaf`` returns what is not computed by one."""
    if not isinstance(form, tuple):
        return form
    name, *parts = form
    return OPERATIONS[name][0](*(evaluate(part, leaf) for part in parts)) if name in OPERATIONS else leaf(name, *parts)


class OwnEdit(NamedTuple):
    """An edit, its form, and the text of a function for :func:`lpkit.kernels.triton_texts._by_text`."""

    form: tuple[tuple[Any, ...], ...]
    name: str
    source: str


def own_edit(form: tuple[tuple[Any, ...], ...], columns: Sequence[torch.Tensor]) -> OwnEdit:
    """Return the kernel of an edit, given as its writes, ``("write", ids, values)``, with numbered columns.

    Raises:
        NotRecordableError: it computes something that no text is known for.
    """
    _need(len(columns) <= MOST_COLUMNS, f"it reads more than {MOST_COLUMNS} columns")
    widths = [column.shape[1] for column in columns]
    writes = [_Write(number, widths, *parts) for number, (_, *parts) in enumerate(form)]
    loops: list[list[str]] = []
    for number, write in enumerate(writes):
        loops += [item.keep for item in writes if item.since == number] + [write.write]
    body = "\n        tl.debug_barrier()\n".join("\n".join(f"        {line}" for line in loop) for loop in loops)
    name = f"edit_{crc32(body.encode()):08x}"
    source = f"""@triton.jit
def {name}(at, text, columns, logits, found, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    row, slot, edited, prompt, total = at
    width, vocab, _ = sizes
    room = {" + ".join(["width", *(f"columns[{number}][2]" for number in range(len(columns)))])}
    found += row * room * {len(form)}
    if edited:
{body}
"""
    return OwnEdit(form, name, source)


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotRecordableError(otherwise)


class _Write:
    """The text of a write. Its values are kept before the first is written: an id may occur twice.

    Attributes:
        since: number of writes before its reads.
        keep, write: lines.
    """

    def __init__(self, number: int, widths: Sequence[int], ids: Any, values: Any) -> None:
        self._names: dict[str, str] = {}  # by text
        self._reads: set[int] = set()
        self._lists: dict[str, int] = {}  # sizes of lists, and widths
        self._widths, self._shift = widths, 0
        (of_ids, token), count = self._ids(ids), len(self._names)
        made, name = self._value(values)
        fits = not isinstance(made, torch.Tensor) or made.shape in (_COLUMN, of_ids.shape)
        _need(fits, "it writes values of another shape than its ids")
        _need(len(self._reads) < 2, "it combines logits from before and after a write")
        _need(len({*self._lists.values()}) < 2, "its lists have different widths")
        name, self.since = self._cast((made, name), torch.float32), min(self._reads, default=number)
        size = next(iter(self._lists), "1") + " - 1" * (of_ids.shape == _PART)
        loop = [f"for start in range(0, {size}, BLOCK):", "    place = start + tl.arange(0, BLOCK)"]
        lines = [f"    {name} = {text}" for text, name in {f"place < {size}": "inside", **self._names}.items()]
        kept = f"found + room * {number} + place"
        self.keep = [*loop, *lines, f"    tl.store({kept}, {name}, mask=inside)"]
        real = f"    inside &= ({token} >= 0) & ({token} < vocab)"
        write = f"    tl.store(logits + {token}, tl.load({kept}, mask=inside), mask=inside)"
        self.write = [*loop, *lines[: count + 1], real, write]

    def _named(self, text: str) -> str:
        return self._names.setdefault(text, f"v{len(self._names)}")

    def _ids(self, form: Any) -> tuple[torch.Tensor, str]:
        ids, name = self._value(form)
        is_list = isinstance(ids, torch.Tensor) and ids.dtype == torch.int64 and ids.ndim == 2
        _need(is_list, "its ids are not int64 [n, k]")
        return ids, name

    def _value(self, form: Any) -> tuple[Any, str]:
        """Return a tensor of a form's type and shape, or a number, and the name of its values."""
        if not isinstance(form, tuple):
            return form, ""
        kind, *parts = form
        if kind == "read":
            self._reads.add(parts[0])
            ids, name = self._ids(parts[1])
            text = f"tl.load(logits + tl.minimum(tl.maximum({name}, 0), vocab - 1), mask=inside)"
            return ids.float(), self._named(text)
        if kind == "gather":
            index, name = self._value(parts[2])
            _need(parts[:2] == [("tokens",), 1] and index.shape == _COLUMN, "it gathers more than a token per row")
            return index, self._named(_TOKEN.replace("place", name) + ".to(tl.int64)")
        if kind in OPERATIONS:
            self._shift += kind == "later"
            given = [self._value(part) for part in parts]
            self._shift -= kind == "later"
            return self._computed(kind, given)
        if kind == "a column":
            dtype, (ndim, unsqueezed), number = parts
            shape = _LIST if ndim == 2 else _COLUMN if unsqueezed else _ROW
            size, width = f"columns[{number}][2]", self._widths[number]
            text = f"tl.load(_of(columns[{number}], slot) + place * {ndim - 1}, mask=inside)"
            text += " != 0" * (dtype == torch.bool)
        else:
            _need(kind in _HISTORY, f"its edit computes `{kind}`, which takes a kernel of its own")
            (dtype, shape, text), size, width = _HISTORY[kind], "width", 0
        _need(dtype in _TYPES, f"its edit reads {dtype}")
        if shape == _LIST:
            self._lists[size] = width
        text = text.replace("place", f"(place + {self._shift})") if self._shift else text
        return torch.empty(shape, dtype=dtype, device="meta"), self._named(text)

    def _computed(self, kind: str, given: list[tuple[Any, str]]) -> tuple[Any, str]:
        compute, text = OPERATIONS[kind]
        made = compute(*(value for value, _ in given))
        _need(made.shape in _SHAPES and made.dtype in _TYPES, f"its edit computes {kind} of others")
        if not text:
            return made, given[0][1]
        chosen = [given.pop(1)[1]] if kind in ("where", "masked_fill") else []
        (one, _), (other, name) = given[0], given[-1]
        exact = kind != "div" or name != "" or abs(math.frexp(other)[0]) == 0.5
        _need(exact, "it divides by a number, and a GPU would multiply by its rounded inverse")
        _need(made.dtype != torch.bool or kind not in _CALCULATIONS, "it calculates with truth values")
        common = torch.result_type(one, other) if made.dtype == torch.bool else made.dtype
        first, *others = (self._cast(item, common) for item in given)
        return made, self._named(text.format(first, *chosen, *others))

    def _cast(self, value: tuple[Any, str], dtype: torch.dtype) -> str:
        """Return the name of values, or of a number, as another type."""
        made, name = value
        if isinstance(made, torch.Tensor):
            return name if made.dtype == dtype else self._named(f"{name}.to({_TYPES[dtype]})")
        known = type(made) in (int, float) and not math.isnan(made) and dtype != torch.bool
        _need(known, f"its edit computes with {made!r}")
        number = torch.full((), made, dtype=dtype).item()
        text = f'float("{number}")' if dtype == torch.float32 else str(number)
        return self._named(f"tl.full((BLOCK,), {text}, {_TYPES[dtype]})")
