"""The likely cause and fix of an exception, where its type and text are enough to know them."""

from __future__ import annotations

import ast
import builtins
import contextlib
import linecache
import re
import reprlib
import sys
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from lpkit_conformance.explanation.advice import CAUSES, FIXES
from lpkit_conformance.instruments.author_lines import is_authors, only_looks, parsed, syntax_of, value_of

MISCALLED = r"(\w+)\(\) (?:takes|got multiple values|missing \d+ required)"
"""How Python says that a call has other arguments than the function."""

BEYOND = r"index (\d+) is out of bounds for .* size (\d+)|mask \[(\d+)\] .* indexed tensor \[(\d+)"
"""How torch says that an index, or the length of a mask, is not one of a dimension."""

TOO_LARGE = "too (large|big)(?!.* float)|out of bounds"
"""How Python and numpy say that a number does not fit in a type."""

TYPE = r"out of bounds for (u?int\d+)|to type (?:c10::)?(\w+?)(?:_t)? without overflow"
"""How numpy and torch name this type."""

DTYPES = {"int": "int32", "float": "float32", "Half": "float16", "BFloat16": "bfloat16"}
"""Types that torch names otherwise there."""

BEYOND_INT64 = r"C long|long long|int too big"
"""What they say of a number that int64 does not hold."""

INDICES = {
    "float index": r"used as indices must|xpected (a long tensor|dtype int.*) for index|indices should be Long|"
    r"index tensors of type|argument #1 'indices'",
    "k out of range": r"selected (index|number) k out of range|start \(.*\) \+ length",
    "negative index": r"index -1 is out of bounds for dimension \d+ with size [1-9]|id=-1 |non-negative|range in self",
}
"""How torch and numpy say what is wrong with an index, by cause."""

RANKED = r"\b(sort|topk|msort)\("
"""What gives the entries of a row by rank."""

NUMBERS = r"\b(?:rows|request)\.(?:slots?|index)\b|\b(?:\w+\.)?\w*idx_mapping\b|\breq_idx\b"
"""Usual names of the number of a row or a slot."""

MOST_VALUES = 3
"""Variables of a line that a cause names."""

DEPTH, MOST_PARTS = 8, 4096
"""Levels of dicts, lists and attributes in which a request's arguments are looked for, and values of a level."""


def read(kind: str, text: str, error: BaseException | None = None) -> tuple[str, str, str]:
    """Return cause and fix of an exception of type ``kind``, and the line at fault if it does not raise itself.

    What is not known is empty.
    """
    line, values = "", _values(error) if error is not None else ""
    index = size = 0
    stored = compares = ""
    if error is not None and (line := _prompt_first(error)):
        kind = "prompt first"
    elif error is not None and _reads_environment(error):
        kind = "environment"
    elif "assign a NoneType" in text:
        kind = "returned None"
    elif (called := miscalled(kind, text, error)) and called != "__init__":
        kind = "signature" if called in ("apply", "add_request", "update_state") else "three counted"
    elif kind in ("AttributeError", "TypeError") and "NoneType" in text:
        kind = "None"
    elif error is not None and (keyed := _text_keys(error, text)):
        kind, (values, line) = "text keys", keyed
    elif kind == "IndexError" and error is not None and (before := _beyond(error)) is not None:
        kind, line = "one beyond", before
    elif error is not None and (wrong := _wrong_index(error, text)):
        kind, values, line = wrong[0], wrong[1] or values, wrong[2]
    elif found := re.search(BEYOND, text):
        index, size = (int(number) for number in found.groups() if number)
        kind = _not_in_logits(error, index, size, found[3]) or ("one beyond" if index == size else kind)
        values, line = _index_at(error, index) if error is not None else ("", "")
        unsure = error is not None and kind in ("no token", "one beyond", "IndexError")
        if error is not None and unsure and _by_rank(error, index):
            kind, values = "k out of range", values or f"the index is {index}, and the size {size}"
        elif error is not None and unsure and index == size and any(admits := _admits(error, size)):
            kind, (compares, line) = "off by one", admits
    elif error is not None and (found := re.search(r"tensor a \((\d+)\) must match .*tensor b \((\d+)\)", text)):
        kind = "a value per row" if _values_per_row(error, {int(found[1]), int(found[2])}) else kind
    elif re.search(r"'\w*Config' object has no attribute", text):
        kind = "config field"
    elif (found := re.search(r"'(\w+)' object has no attribute", text)) and not hasattr(builtins, found[1]):
        kind = "missing attribute"
    if kind == "OverflowError" and not re.search(TOO_LARGE, text):
        kind = "out of range"
    if re.search("without overflow|Overflow when", text):  # torch raises others
        kind = "OverflowError"
    if kind == "None" and values.endswith(" is None"):
        kind = "this None"
    if kind == "OverflowError" and error is not None:
        from lpkit_conformance.instruments.trails import set_by  # loads torch

        stored = next((set_by(f"{frame.f_code.co_filename}:{at}") for frame, at in _author_frames(error)), "")
        dtype = _dtype(error, stored, text)
        kind = "beyond int64" if dtype == "int64" or re.search(BEYOND_INT64, text) else kind
        kind = "beyond float" if "float" in dtype else kind
        stored = (f" of `{stored}`" if stored and (dtype or "." in stored) else "") + (f" ({dtype})" if dtype else "")
    causes = (
        "" if kind in ("prompt first", "OverflowError", "beyond int64", "beyond float") else values,
        CAUSES["exception"]
        .get(kind, "")
        .format(index=index, size=size, last=size - 1, stored=stored, compares=compares),
    )
    return "; ".join(filter(None, causes)), FIXES["exception"].get(kind, ""), line


def miscalled(kind: str, text: str, error: BaseException | None) -> str:
    """Return the name of a function that the engine called with other arguments than it takes; else an empty text."""
    found = re.search(MISCALLED, text) if kind == "TypeError" else None
    return found[1] if found and (error is None or not any(_author_frames(error))) else ""


def _not_in_logits(error: BaseException | None, index: int, size: int, mask: str | None) -> str:
    """Return the kind of an index that meets the rows or the vocabulary of the author's logits; else an empty text."""
    for frame, _ in _author_frames(error) if error else ():
        for name, value in frame.f_locals.items():
            shape = tuple(getattr(value, "shape", ())) if "logits" in name else ()
            if shape[:-1] == (size,):
                return "mask beyond rows" if mask else "slot as row" if index in _slots(frame) else "no row"
            if shape[-1:] == (size,) and not mask:
                return "no token"
    return ""


def _wrong_index(error: BaseException, text: str) -> tuple[str, str, str] | None:
    """Return the kind of an index that is not just too large, with what it is and the line that makes it."""
    kind = next((key for key, says in INDICES.items() if re.search(says, text)), "")
    with contextlib.suppress(Exception):  # as in _values
        frame, number = next(_author_frames(error))
        if not kind or any(isinstance(node, ast.Raise) for node in parsed(frame.f_code.co_filename, number).body):
            return None  # the author's own words
        if kind != "negative index":
            values = _empty_index(error) if kind == "float index" else (_too_many(error), "")
            return kind, *values
        values = _index_at(error, -1, r"\binput_ids\b")
        held = (value for frame, _ in _author_frames(error) for value in frame.f_locals.values())
        drafts = any(_holds(getattr(value, "input_ids", ()), -1) for value in held)
        return ("unknown draft" if drafts else kind, *values) if values[0] else None
    return None


def _empty_index(error: BaseException) -> tuple[str, str]:
    """Return the empty tensor or list of a line, and the only line that can have made the tensor of a list."""
    with contextlib.suppress(Exception):  # as in _values
        frame, number = next(_author_frames(error))
        file, function = frame.f_code.co_filename, range(frame.f_code.co_firstlineno, number)
        nodes = list(ast.walk(parsed(file, number)))
        for call in _tensors_of(nodes):
            if _looked_at(call.args[0], frame) in ([], ()):
                return f"`{ast.unparse(call.args[0])}` is empty", ""
        empty = (node for node in nodes if 0 in tuple(getattr(_looked_at(node, frame), "shape", ())))
        name = ast.unparse(next(empty))
        made = [(path, call) for path, node in _code_of(error) for call in _tensors_of([node])]
        here = [(path, call) for path, call in made if path == file and call.lineno in function]
        made = [found for found in here if _sets(file, found[1].lineno, name)] or [*{*made} - {*here}]
        if len(made) == 1:
            ((path, call),) = made
            return f"`{name}` is empty, and made of `{ast.unparse(call.args[0])}`", f"{path}:{call.lineno}"
        return f"`{name}` is empty", ""
    return "", ""


def _code_of(error: BaseException) -> Iterator[tuple[str, ast.AST]]:
    """Yield the author's code in the modules of the failing objects, with its file, but no classes of other objects."""
    frames = [frame for frame, _ in _author_frames(error)]
    objects = [frame.f_locals[name] for frame in frames for name in ("self", "cls") if name in frame.f_locals]
    bases = [base for item in objects for base in (item if isinstance(item, type) else type(item)).__mro__]
    files = {frame.f_code.co_filename: None for frame in frames}
    files |= {getattr(sys.modules.get(base.__module__), "__file__", None) or "<": None for base in bases}
    names = {base.__name__ for base in bases}
    for file in filter(is_authors, files):
        body = syntax_of(file).body
        own = [node for node in body if isinstance(node, ast.ClassDef) and (node.name in names or not names)]
        used = names | {node.id for part in own for node in ast.walk(part) if isinstance(node, ast.Name)}
        parts = [node for node in body if not isinstance(node, ast.ClassDef) or node.name in used or node in own]
        yield from ((file, node) for part in parts for node in ast.walk(part))


def _sets(file: str, line: int, name: str) -> bool:
    return linecache.getline(file, line).lstrip().startswith(f"{name} = ")


def _tensors_of(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Yield the calls that make tensors of what may be an empty list, without a type."""
    for node in nodes:
        if isinstance(node, ast.Call) and re.search(
            r"^((torch|np|numpy)\.)?(as_?)?([tT]ensor|array)$", ast.unparse(node.func)
        ):
            empty = node.args and not isinstance(node.args[0], ast.Constant) and not getattr(node.args[0], "elts", None)
            if empty and "dtype" not in [keyword.arg for keyword in node.keywords]:
                yield node


def _too_many(error: BaseException) -> str:
    """Return how many entries a call takes of a row that has fewer; else an empty text."""
    with contextlib.suppress(Exception):  # as in _values
        frame, number = next(_author_frames(error))
        for call in ast.walk(parsed(frame.f_code.co_filename, number)):
            if isinstance(call, ast.Call) and re.search(r"\.(topk|kthvalue|narrow)$", ast.unparse(call.func)):
                nodes = [*call.args, *(keyword.value for keyword in call.keywords), *ast.iter_child_nodes(call.func)]
                read = {ast.unparse(node): _looked_at(node, frame) for node in nodes}
                row, size = next((name, value.shape[-1]) for name, value in read.items() if getattr(value, "ndim", 0))
                counts = {
                    name: int(value) for name, value in read.items() if getattr(value, "ndim", type(value)) in (0, int)
                }
                k = max(counts, key=lambda name: counts[name])
                return f"`{k}` is {counts[k]}, more than the {size} entries of `{row}`" if counts[k] > size else ""
    return ""


def _by_rank(error: BaseException, index: int) -> bool:
    """Return True if what the line indexes is the sorted entries of a row."""
    with contextlib.suppress(Exception):  # as in _values
        frame, number = next(_author_frames(error))
        file, first = frame.f_code.co_filename, frame.f_code.co_firstlineno
        nodes = list(ast.walk(parsed(file, number)))
        items = [node for node in nodes if isinstance(node, ast.Subscript)]
        held = [
            ast.unparse(item.value)
            for item in items
            if any(_holds(_looked_at(part, frame), index) for part in ast.walk(item.slice))
        ]
        attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
        held += [ast.unparse(node.value) for node in attributes if node.attr in ("gather", "index_select")]
        made = re.compile(rf"[\w ,.]*\b({'|'.join(map(re.escape, held))})\b[\w ,.]* = .*{RANKED}")
        lines = [linecache.getline(file, line) for line in range(first, number)]
        return bool(re.search(RANKED, " ".join(held)) or (held and any(map(made.match, lines))))
    return False


def _admits(error: BaseException, size: int) -> tuple[str, str]:
    """Return the comparison of the author's that lets the size through as an index, and its ``file:line``.

    One in a function that runs comes first.
    """
    found: list[tuple[bool, str, str]] = []
    with contextlib.suppress(Exception):  # as in _values
        frames = [frame for frame, _ in _author_frames(error)]
        for file, node in _code_of(error):
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            for left, compares, right in zip(sides, getattr(node, "ops", ()), sides[1:], strict=False):
                admits = isinstance(compares, ast.LtE | ast.Gt), isinstance(compares, ast.GtE | ast.Lt)
                one, limit = (left, right) if admits[0] else (right, left)
                own = ast.unparse(limit).startswith(("self.", "cls."))
                held = [frame for frame in frames if own or _runs(frame, file, left.lineno)]
                # A number beside the limit that is another one than the index is no index.
                is_index = "len(" not in ast.unparse(one)
                is_index &= all(_looked_at(one, frame) in (None, size) for frame in held)
                if any(admits) and is_index and size in [_looked_at(limit, frame) for frame in held]:
                    runs = any(_runs(frame, file, left.lineno) for frame in frames)
                    text = ast.unparse(ast.Compare(left, [compares], [right]))
                    found.append((runs, f"`{text}`", f"{file}:{left.lineno}"))
    return max(found, key=lambda item: item[0], default=(False, "", ""))[1:]


def _runs(frame: FrameType, file: str, line: int) -> bool:
    return file == frame.f_code.co_filename and line in [number for *_, number in frame.f_code.co_lines()]


def _text_keys(error: BaseException, text: str) -> tuple[str, str] | None:
    """Return a key of text that the line takes for a number, and ``file:line`` of the loop that reads the keys."""
    with contextlib.suppress(Exception):  # as in _values
        frame, number = next(_author_frames(error))
        file, first = frame.f_code.co_filename, frame.f_code.co_firstlineno
        nodes = list(ast.walk(parsed(file, number)))
        if isinstance(error, KeyError):
            looked_up = [(held, index) for *_, held, index in _looked_up(nodes, frame) if type(index) is int]
            return (_values(error), "") if any(str(index) in held for held, index in looked_up) else None
        for node in nodes if re.search(r"\bstr\b", text) else ():
            value = _looked_at(node, frame)
            key = next(iter(value), None) if isinstance(value, dict) else value
            if type(key) is str and key.lstrip("-").isdecimal() and any(key in held for held in _tables(error)):
                name = ast.unparse(node)
                loops = [loop for loop in ast.walk(syntax_of(file)) if isinstance(loop, ast.For)]
                loops = [loop for loop in loops if name in map(ast.unparse, ast.walk(loop.target))]
                lines = [f"{file}:{loop.lineno}" for loop in loops if first <= loop.lineno <= number]
                if lines or value is not key:
                    said = f"`{name}` {'is' if value is key else 'has the key'} {key!r}"
                    return said, lines[-1] if lines else ""
    return None


def _tables(error: BaseException) -> Iterator[dict[Any, Any]]:
    """Yield the dicts that the author's frames hold, those in requests' arguments and in the state of objects too."""
    parts: list[Any] = [frame.f_locals for frame, _ in _author_frames(error)]
    for _ in range(DEPTH):
        yield from (part for part in parts if isinstance(part, dict))
        parts = [inner for part in parts for inner in _parts(part) if inner is not None][:MOST_PARTS]


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict | list | tuple):
        return value.values() if isinstance(value, dict) else value
    return getattr(value, "extra_args", None), getattr(value, "__dict__", None)


def _dtype(error: BaseException, stored: str, text: str) -> str:
    """Return the type in which the line stores a number; empty if neither the variable nor the text shows it."""
    node = ast.parse(stored or "None", mode="eval").body
    held = next((_looked_at(node, frame) for frame, _ in _author_frames(error)), None)
    found = re.search(TYPE, text)
    name = found[found.lastindex or 0] if found else ""
    return str(getattr(held, "dtype", DTYPES.get(name, name))).removeprefix("torch.")


def _looked_at(node: ast.AST, frame: FrameType) -> Any:
    """Return the value of a part of a line; None if it is not to be evaluated once more, or has none."""
    with contextlib.suppress(Exception):
        if isinstance(node, ast.expr) and only_looks(node, ("len", "int", "min", "max")):
            return value_of(node, frame)
    return None


def _index_at(error: BaseException, index: int, made_of: str = NUMBERS) -> tuple[str, str]:
    """Return the variable at fault that holds an index, and ``file:line`` that makes it of such names."""
    with contextlib.suppress(Exception):  # as in _values
        frame, number = next(_author_frames(error))
        file, first = frame.f_code.co_filename, frame.f_code.co_firstlineno
        nodes = [node for node in ast.walk(parsed(file, number)) if isinstance(node, ast.Name | ast.Attribute)]
        name = next(
            ast.unparse(node)
            for node in nodes
            if "logits" not in ast.unparse(node) and _holds(held := value_of(node, frame), index)
            if index >= 0 or type(held) is not int  # as a dimension is
        )
        makes = re.compile(rf"\s*{re.escape(name)} = .*({made_of})")
        made = [line for line in range(first, number) if makes.match(linecache.getline(file, line))]
        return f"`{name}` holds {index}", f"{file}:{made[-1]}" if made else ""
    return "", ""


def _holds(value: Any, number: int) -> bool:
    """Return True if a number is in a value, or in one of its parts."""
    value = value.tolist() if hasattr(value, "tolist") and "float" not in str(value.dtype) else value
    parts = value if isinstance(value, list | tuple | set) else ()
    return (type(value) is int and value == number) or any(_holds(part, number) for part in parts)


def _slots(frame: FrameType) -> list[int]:
    """Return the slots of a call's rows, which its context or its ``rows`` tells."""
    for value in frame.f_locals.values():
        for name in ("expanded_idx_mapping", "slots"):
            if hasattr(slots := getattr(value, name, ()), "tolist"):
                return [int(slot) for slot in slots]
    return []


def _reads_environment(error: BaseException) -> bool:
    """Return True if the line at fault reads a variable of the environment."""
    at = next(((frame.f_code.co_filename, line) for frame, line in _author_frames(error)), None)
    return at is not None and bool(re.search(r"\benviron\b|\bgetenv\(", linecache.getline(*at)))


def _author_frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yield frames and lines of the author's code, the last call first."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if is_authors(frame.f_code.co_filename):
            yield frame, line


def _values(error: BaseException) -> str:
    """Return what the line at fault reads: an entry that is not there, else its plain variables and attributes."""
    with contextlib.suppress(Exception):  # no line, one of a longer statement, or names that it has changed since
        frame, number = next(_author_frames(error))
        nodes = list(ast.walk(parsed(frame.f_code.co_filename, number)))
        for name, at, held, index in _looked_up(nodes, frame):
            if isinstance(held, dict) and index not in held:
                return f"`{name}` has no entry {index!r}"
            if isinstance(held, list | tuple) and not -len(held) <= index < len(held):
                which = "the index" if at == str(index) else f"`{at}`"
                return f"`{name}` has {len(held)} entr{'y' if len(held) == 1 else 'ies'}, and {which} is {index}"
        read = {ast.unparse(node): _plain(node, frame) for node in nodes if isinstance(node, ast.Name | ast.Attribute)}
        if "NoneType" in str(error) and "None" in read.values():
            read = {name: value for name, value in read.items() if value == "None"}
        return " and ".join([f"`{name}` is {value}" for name, value in read.items() if value][:MOST_VALUES])
    return ""


def tested(error: BaseException) -> tuple[str, str]:
    """Return name and value of the first plain variable that the condition of the author's ``raise`` asks."""
    with contextlib.suppress(Exception):  # as above
        frame, number = next(_author_frames(error))
        around = [node for node in ast.walk(syntax_of(frame.f_code.co_filename)) if isinstance(node, ast.If)]
        around = [node for node in around if node.lineno <= number <= (node.end_lineno or 0)]
        test = max(around, key=lambda node: node.lineno).test
        asked = [node for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute)]
        plain = ((ast.unparse(node), _plain(node, frame)) for node in asked)
        return next((name, value) for name, value in plain if value and value[0] not in "([")
    return "", ""


def _beyond(error: BaseException) -> str | None:
    """Return ``file:line`` of the condition that lets an index through which is the size; None for other indices.

    It is empty if no condition around the line, or before it with a return, asks for the index.
    """
    with contextlib.suppress(Exception):  # as above
        frame, number = next(_author_frames(error))
        file, first = frame.f_code.co_filename, frame.f_code.co_firstlineno
        if any(hasattr(value, "moved") for value in frame.f_locals.values()):
            return None  # rows of a batch that changes
        for name, at, held, index in _looked_up(ast.walk(parsed(file, number)), frame):
            if isinstance(held, list | tuple) and index == len(held):
                tests = [
                    node.lineno
                    for node in ast.walk(syntax_of(file))
                    if isinstance(node, ast.If) and first <= node.lineno < number and _reads(node.test, at)
                    if number <= (node.end_lineno or 0) or isinstance(node.body[-1], ast.Return | ast.Continue)
                ]
                tests = tests or [
                    node.lineno  # of a property or a method that the condition asks
                    for node in ast.walk(syntax_of(file))
                    if isinstance(node, ast.Compare) and {at, f"len({name})"} <= set(map(ast.unparse, ast.walk(node)))
                ]
                return f"{file}:{max(tests)}" if tests else ""
    return None


def _reads(test: ast.expr, text: str) -> bool:
    """Return True if a condition, or a part of it, is this text."""
    return any(isinstance(node, ast.expr) and ast.unparse(node) == text for node in ast.walk(test))


def _looked_up(nodes: Iterable[ast.AST], frame: FrameType) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield the texts and the values of what is looked up, and of the index."""
    for node in nodes:
        if isinstance(node, ast.Subscript) and only_looks(node):
            with contextlib.suppress(Exception):  # of a variable of a comprehension, such as an outer one
                yield (
                    *(ast.unparse(node.value), ast.unparse(node.slice)),
                    *(value_of(node.value, frame), value_of(node.slice, frame)),
                )


def _plain(node: ast.Name | ast.Attribute, frame: FrameType) -> str:
    """Return the value of a variable or an attribute as a short text; empty unless it is plain data."""
    if isinstance(node, ast.Name):
        value = frame.f_locals.get(node.id, ...)
    else:
        owner = frame.f_locals.get(node.value.id) if isinstance(node.value, ast.Name) else None
        fields = (*getattr(owner, "__dict__", ()), *getattr(owner, "_fields", ()), *getattr(owner, "__slots__", ()))
        value = getattr(owner, node.attr, ...) if node.attr in fields else ...
    return reprlib.repr(value) if type(value) in (int, float, str, bool, list, tuple, type(None)) else ""


def _values_per_row(error: BaseException, sizes: set[int]) -> bool:
    """Return True if a local tensor of logits ``[n, vocab]`` explains two sizes that do not go together."""
    return any(
        getattr(value, "ndim", 0) == 2 and sizes == set(value.shape)
        for frame, _ in _author_frames(error)
        for value in frame.f_locals.values()
    )


def _prompt_first(error: BaseException) -> str:
    """Return ``file:line`` of an author's function whose argument for logits got token ids; empty if none did."""
    return next(
        (
            f"{frame.f_code.co_filename}:{frame.f_code.co_firstlineno}"
            for frame, _ in _author_frames(error)
            for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]
            if "logits" in name and isinstance(frame.f_locals.get(name), list)
        ),
        "",
    )
