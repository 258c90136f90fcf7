"""An author's own ``edit`` or ``process`` as Triton code: elementwise operations on columns and logits.

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
    "at_least": (
        lambda values, least: values.clamp(min=least),
        "tl.where({1} != {1}, {1}, tl.where({0} < {1}, {1}, {0}))",
    ),
    "at_most": (
        lambda values, most: values.clamp(max=most),
        "tl.where({1} != {1}, {1}, tl.where({0} > {1}, {1}, {0}))",
    ),
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
"""Each operation in torch, and its text in Triton."""

OF_LISTS = frozenset({"earlier", "gather", "later"})
"""Operations that choose among a row's values."""

_FUNCTIONS = "exp", "exp2", "expm1", "log", "log1p", "log2", "pow", "reciprocal", "rsqrt", "sigmoid", "sqrt", "tanh"
OF_COLUMNS: dict[str, Callable[..., Any]] = {name: getattr(torch.Tensor, name) for name in _FUNCTIONS}
"""Operations that torch computes of columns, when requests come: a GPU's own functions could have other bits."""

_TYPES = {torch.float32: "tl.float32", torch.int64: "tl.int64", torch.bool: "tl.int1"}
_SHAPES = _ROW, _COLUMN, _LIST, _PART = torch.Size([5]), torch.Size([5, 1]), torch.Size([5, 9]), torch.Size([5, 8])
_TOKEN = "text_at(text, place, inside & (place < total), -1, DRAFTS)"
_HISTORY = {
    "prompt_len": (torch.int64, _ROW, "(prompt + place * 0).to(tl.int64)"),
    "total_len": (torch.int64, _ROW, "(total + place * 0).to(tl.int64)"),
    "tokens": (torch.int64, _LIST, f"{_TOKEN}.to(tl.int64)"),
    "is_output": (torch.bool, _LIST, f"(place >= prompt) & ({_TOKEN} >= 0)"),
}
"""Type, shape and text of the parts of histories that a step reads."""


def evaluate(form: Any, leaf: Callable[..., Any]) -> Any:
    """Compute a form with torch's operations; ``leaf`` returns what is not computed by one."""
    if not isinstance(form, tuple):
        return form
    name, *parts = form
    return OPERATIONS[name][0](*(evaluate(part, leaf) for part in parts)) if name in OPERATIONS else leaf(name, *parts)


class OwnStep(NamedTuple):
    """An author's own step: its form, and the text of a function that does the same.

    Attributes:
        name: of the function.
        source: for :func:`lpkit.kernels.triton_sequences._by_text`, or :func:`~lpkit.kernels.triton_rows._over_row`.
        reads_top: True if it reads each row's highest logit.
    """

    form: tuple[Any, ...]
    name: str
    source: str
    reads_top: bool = False


def own_edit(form: tuple[tuple[Any, ...], ...], columns: Sequence[torch.Tensor]) -> OwnStep:
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
    lines = ["row, slot, edited, prompt, total = at", "width, vocab, _ = sizes"]
    lines.append(f"room = {' + '.join(['width', *(f'columns[{number}][2]' for number in range(len(columns)))])}")
    lines += [f"scratch += row * room * {len(form)}", "if edited:"]
    for loop in loops:
        lines += [f"    {line}" for line in ("tl.debug_barrier()", *loop)][loop is loops[0] :]
    return _own_step(form, "edit", "at, text, columns, logits, scratch, sizes, DRAFTS", lines)


def own_process(form: tuple[Any, ...], columns: Sequence[torch.Tensor]) -> OwnStep:
    """Return the kernel of a ``process``, given as what it returns, with numbered columns of one value per row.

    Raises:
        NotRecordableError: it computes something that no text is known for.
    """
    _need(len(columns) <= MOST_COLUMNS, f"it reads more than {MOST_COLUMNS} columns")
    whole = _Whole(form)
    before = [f"v{number} = tl.load(values[{number}])" for number in range(len(columns))]
    if whole.reads_top:
        before += ["numbers, tops = numbers_of(scratch, at)", "top = highest(numbers, at[2])"]
    lines = [*before, *whole.lines]
    return _own_step(form, "process", "logits, tiles, scratch, values, at, KIND", lines, whole.reads_top)


def _own_step(form: Any, kind: str, given: str, lines: Sequence[str], reads_top: bool = False) -> OwnStep:
    body = "\n".join(f"    {line}" for line in lines)
    name = f"{kind}_{crc32(body.encode()):08x}"
    head = f"def {name}({given}: tl.constexpr, BLOCK: tl.constexpr):"
    return OwnStep(form, name, f"@triton.jit\n{head}\n{body}\n", reads_top)


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotRecordableError(otherwise)


class _Values:
    """Names of values that are computed, by their text."""

    size = "(BLOCK,)"
    """Shape of a number."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def _made(self) -> list[str]:
        return [f"{name} = {text}" for text, name in self._names.items()]

    def _named(self, text: str) -> str:
        return self._names.setdefault(text, f"x{len(self._names)}")

    def _leaf(self, kind: str, parts: list[Any]) -> tuple[Any, str] | None:
        """Return what :meth:`_value` does, for what is read; None for what is computed."""
        raise NotImplementedError

    def _value(self, form: Any) -> tuple[Any, str]:
        """Return a tensor of a form's type and shape, or a number, and the name of its values."""
        if not isinstance(form, tuple):
            return form, ""
        kind, *parts = form
        return self._leaf(kind, parts) or self._computed(kind, [self._value(part) for part in parts])

    def _computed(self, kind: str, given: list[tuple[Any, str]]) -> tuple[Any, str]:
        compute, text = OPERATIONS[kind]
        made = compute(*(value for value, _ in given))
        _need(made.shape in _SHAPES and made.dtype in _TYPES, f"it computes {kind} of others")
        if not text:
            return made, given[0][1]
        chosen = [given.pop(1)[1]] if kind in ("where", "masked_fill") else []
        (left, _), (right, name) = given[0], given[-1]
        exact = kind != "div" or name != "" or abs(math.frexp(right)[0]) == 0.5
        _need(exact, "it divides by a number, and a GPU would multiply by its rounded inverse")
        _need(made.dtype != torch.bool or kind not in _CALCULATIONS, "it calculates with truth values")
        compares = made.dtype == torch.bool and not chosen
        common = torch.result_type(left, right) if compares else made.dtype
        first, *others = (self._cast(item, common) for item in given)
        return made, self._named(text.format(first, *chosen, *others))

    def _cast(self, value: tuple[Any, str], dtype: torch.dtype) -> str:
        """Return the name of values, or of a number, as another type."""
        made, name = value
        if isinstance(made, torch.Tensor):
            return name if made.dtype == dtype else self._named(f"{name}.to({_TYPES[dtype]})")
        representable = type(made) in (int, float) and not math.isnan(made) and dtype != torch.bool
        representable = representable and (made != 0 or math.copysign(1, made) > 0)  # some Tritons make 0.0 of -0.0
        _need(representable, f"it computes with {made!r}")
        number = torch.full((), made, dtype=dtype).item()
        text = f'float("{number}")' if dtype == torch.float32 else str(number)
        return self._named(f"tl.full({self.size}, {text}, {_TYPES[dtype]})")


class _Whole(_Values):
    """The text of a ``process`` for a part of a row.

    Attributes:
        lines: of the text.
        reads_top: True if it reads the row's highest logit.
    """

    size = "()"

    def __init__(self, form: tuple[Any, ...]) -> None:
        super().__init__()
        self.reads_top = False
        masks = form[:2] == ("masked_fill", ("logits",))
        if masks and form[2][:2] == ("lt", ("logits",)) and form[3] == -math.inf:
            limit, name = self._value(form[2][2])
            if _passes_nan(form[2][2]) and limit.shape == _COLUMN and limit.dtype == torch.float32:
                self.lines = [*self._made(), f"mask_spans(logits, tiles, tops, {name})"]
                return
        made, name = self._value(form)
        _need(made.shape == _LIST and made.dtype == torch.float32, "it returns no logits")
        every, changed = "tl.full((BLOCK,), 1, tl.int1)", ""
        if masks:  # of most tiles perhaps nothing
            changed = f"tl.where({self._value(form[2])[1]}, {every}, tl.full((BLOCK,), 0, tl.int1))"
        read = "seen = tile(logits, offset, 0.0, BLOCK)"
        loop = [read, *self._made(), f"changed = {changed or every}", "if anything(changed):" if masks else "if True:"]
        loop.append(f"    write(logits, offset, {name}, changed, BLOCK)")
        self.lines = ["for offset in range(tiles[0], tiles[1], BLOCK):", *(f"    {line}" for line in loop)]

    def _leaf(self, kind: str, parts: list[Any]) -> tuple[Any, str] | None:
        if kind == "logits":
            return torch.empty(_LIST, device="meta"), "seen"
        if kind == "amax":
            self.reads_top = True
            return torch.empty(_COLUMN if parts[0] else _ROW, device="meta"), "top"
        if kind not in ("a column", "a tensor"):
            _need(kind not in _HISTORY, "its process reads lengths or tokens")
            of_rows = kind in OPERATIONS and kind not in OF_LISTS
            _need(of_rows, f"it computes `{kind}`, which takes a kernel of its own")
            return None
        dtype, (ndim, unsqueezed), number = parts
        _need(kind == "a column" and ndim == 1 and dtype in _TYPES, "it reads lists, tensors or other types")
        name = f"v{number}"
        name = self._named(f"{name} != 0") if dtype == torch.bool else name
        return torch.empty(_COLUMN if unsqueezed else _ROW, dtype=dtype, device="meta"), name


def _passes_nan(form: Any) -> bool:
    """Return True for what is NaN in each row whose highest logit is NaN."""
    if not isinstance(form, tuple):
        return False
    passes = form[0] in ("add", "sub", "mul", "div", "maximum", "minimum", "unsqueeze")
    return form[0] == "amax" or (passes and any(map(_passes_nan, form[1:])))


class _Write(_Values):
    """The text of a write. Its values are kept before the first is written: an id may occur twice.

    Attributes:
        since: number of writes before its reads.
        keep, write: lines.
    """

    def __init__(self, number: int, widths: Sequence[int], ids: Any, values: Any) -> None:
        super().__init__()
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
        kept = f"scratch + room * {number} + place"
        self.keep = [*loop, *lines, f"    tl.store({kept}, {name}, mask=inside)"]
        real = f"    inside &= ({token} >= 0) & ({token} < vocab)"
        write = f"    tl.store(logits + {token}, tl.load({kept}, mask=inside), mask=inside)"
        self.write = [*loop, *lines[: count + 1], real, write]

    def _ids(self, form: Any) -> tuple[torch.Tensor, str]:
        ids, name = self._value(form)
        is_list = isinstance(ids, torch.Tensor) and ids.dtype == torch.int64 and ids.ndim == 2
        _need(is_list, "its ids are not int64 [n, k]")
        return ids, name

    def _value(self, form: Any) -> tuple[Any, str]:
        later = isinstance(form, tuple) and form[0] == "later"
        self._shift += later
        value = super()._value(form)
        self._shift -= later
        return value

    def _leaf(self, kind: str, parts: list[Any]) -> tuple[Any, str] | None:
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
            return None
        if kind == "a column":
            dtype, (ndim, unsqueezed), number = parts
            shape = _LIST if ndim == 2 else _COLUMN if unsqueezed else _ROW
            size, width = f"columns[{number}][2]", self._widths[number]
            text = f"tl.load(values_of(columns[{number}], slot) + place * {ndim - 1}, mask=inside)"
            text += " != 0" * (dtype == torch.bool)
        else:
            _need(kind in _HISTORY, f"it computes `{kind}`, which takes a kernel of its own")
            (dtype, shape, text), size, width = _HISTORY[kind], "width", 0
        _need(dtype in _TYPES, f"it reads {dtype}")
        if shape == _LIST:
            self._lists[size] = width
        text = text.replace("place", f"(place + {self._shift})") if self._shift else text
        return torch.empty(shape, dtype=dtype, device="meta"), self._named(text)
