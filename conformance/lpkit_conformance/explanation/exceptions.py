"""The likely cause and fix of an exception, where its type and text are enough to know them."""

from __future__ import annotations

import ast
import builtins
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import NamedTuple

from lpkit_conformance.explanation.advice import CAUSES, FIXES
from lpkit_conformance.explanation.raised import Raised, holds, looked_at, unless_unreadable
from lpkit_conformance.instruments.author_lines import syntax_of

MISCALLED = r"(\w+)\(\) (?:takes|got multiple values|missing \d+ required)"
"""How Python says that a call has other arguments than the function."""

HOOKS = ("admit", "process", "edit", "new_req_logits_processor")
"""Methods that lpkit calls, each a key of the advice."""

ARGUMENTS = r"\b(params|extra_args|args)\b"
"""Names in an index that comes of a request's arguments."""

BEYOND = r"index (\d+) is out of bounds for .* size (\d+)|mask \[(\d+)\] .* indexed tensor \[(\d+)"
"""How torch says that an index, or the length of a mask, is not one of a dimension."""

TOO_LARGE = "too (large|big)(?!.* float)|out of bounds"
"""How Python and numpy say that a number does not fit in a type."""

OVERFLOWS = "without overflow|Overflow when"
"""How torch says it, in exceptions of other types."""

TYPE = r"out of bounds for (u?int\d+)|to type (?:c10::)?(\w+?)(?:_t)? without overflow"
"""How numpy and torch name this type."""

DTYPES = {"int": "int32", "float": "float32", "Half": "float16", "BFloat16": "bfloat16"}
"""Types that torch names otherwise there."""

BEYOND_INT64 = r"C long|long long|int too big"
"""What they say of a number that int64 does not hold."""

ENVIRONMENT = r"\b(environ\b|getenv\()"
"""What reads a variable of the environment."""

INDICES = {
    "float number": r"valid indices \(got float\)|list indices must be integers or slices, not float",
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


class Explanation(NamedTuple):
    """Why an exception was raised; each text is empty if it is not known.

    Attributes:
        kind: key of cause and fix in ``advice.toml``, or the name of the exception's type.
        line: ``file:line`` at fault, if it is not the one that raised.
    """

    kind: str
    cause: str
    fix: str
    line: str


class Reading(NamedTuple):
    """An exception as a reader understands it.

    Attributes:
        values: what the line read, as the first part of the cause.
        details: for the text of the cause.
    """

    kind: str
    values: str
    line: str = ""
    details: Mapping[str, object] = {}


def read(kind: str, text: str, error: BaseException | None = None) -> Explanation:
    """Explain an exception of the type with the name ``kind``, and this message."""
    raised = Raised(kind, text, error)
    reading = next(filter(None, (reader(raised) for reader in READERS)), None) or Reading(kind, raised.values())
    cause = CAUSES["exception"].get(reading.kind, "").format_map(reading.details)
    fix = FIXES["exception"].get(reading.kind, "")
    return Explanation(reading.kind, "; ".join(filter(None, (reading.values, cause))), fix, reading.line)


def tested(error: BaseException) -> tuple[str, str]:
    """Return name and value of the first plain variable that the condition of the author's ``raise`` asks."""
    return Raised(type(error).__name__, str(error), error).tested()


def holds_tokenizer(error: BaseException | None) -> bool:
    """Return True if a variable of the author's lines that raised, or an attribute of one, is a tokenizer."""
    values = [value for _, value in Raised("", "", error).locals()]
    held = [*values, *(part for value in values for part in getattr(value, "__dict__", {}).values())]
    return any(hasattr(type(value), "convert_tokens_to_ids") or hasattr(type(value), "token_to_id") for value in held)


@unless_unreadable("")
def read_as(error: BaseException | None, kind: str) -> str:
    """Return the variable that the author's line read whose value has a type of this name; empty without one."""
    raised = Raised("", "", error)
    names = [node.id for node in raised.nodes if isinstance(node, ast.Name)]
    return next(name for name in names if type(raised.frame.f_locals.get(name)).__name__ == kind)


def _prompt_first(raised: Raised) -> Reading | None:
    """An author's function whose argument for logits got token ids, or whose third one, with a default, the logits."""
    for frame, _ in raised.frames:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount]
        ids = [name for name in names if isinstance(frame.f_locals.get(name), list)]
        counted = len(ids) == 2 and getattr(frame.f_locals.get(names[-1]), "ndim", 0) == 1
        if (counted and _has_default(frame, names[-1])) or any("logits" in name for name in ids):
            return Reading("prompt first", "", f"{code.co_filename}:{code.co_firstlineno}")
    return None


def _has_default(frame: FrameType, name: str) -> bool:
    """Return True if the last parameter of a frame's function has this name and a default other than None."""
    for node in ast.walk(syntax_of(frame.f_code.co_filename)):
        if isinstance(node, ast.FunctionDef | ast.Lambda) and node.lineno == frame.f_code.co_firstlineno:
            parameters, defaults = node.args.args, [ast.unparse(value) for value in node.args.defaults]
            if parameters and parameters[-1].arg == name:
                return bool(defaults) and defaults[-1] != "None"
    return False


@unless_unreadable(None)
def _environment(raised: Raised) -> Reading | None:
    """A line that reads a variable of the environment, or an empty value that the function has read before."""
    reads = bool(re.search(ENVIRONMENT, linecache.getline(raised.file, raised.number)))
    for node in raised.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and looked_at(node, raised.frame) in (None, ""):
            sets = rf"\s*{re.escape(ast.unparse(node))}(: [^=]+)? = .*{ENVIRONMENT}"
            reads |= any(re.match(sets, text) for _, text in raised.above())
    return Reading("environment", raised.values()) if reads else None


def _overflow(raised: Raised) -> Reading | None:
    """A number that the type does not hold in which the line stores it, or a result that is too large for any."""
    torchs = re.search(OVERFLOWS, raised.text)
    if not torchs and raised.kind != "OverflowError":
        return None
    if not torchs and not re.search(TOO_LARGE, raised.text):
        return Reading("out of range", raised.values())
    from lpkit_conformance.instruments.trails import set_by  # loads torch

    files = ((frame.f_code.co_filename, at) for frame, at in raised.frames)
    stored = next((set_by(f"{file}:{at}") for file, at in files), "")
    dtype = _dtype(raised, stored)
    kind = "beyond int64" if dtype == "int64" or re.search(BEYOND_INT64, raised.text) else "OverflowError"
    kind = "beyond float" if "float" in dtype else kind
    declares = re.compile(rf"\s*{re.escape(stored)}\b[^=]*=.*\b{dtype}\b") if dtype and "." in stored else None
    lines = enumerate(linecache.getlines(raised.file), 1)
    line = next((f"{raised.file}:{n}" for n, text in lines if declares and declares.match(text)), "")
    stored = (f" of `{stored}`" if stored and (dtype or "." in stored) else "") + (f" ({dtype})" if dtype else "")
    return Reading(kind, "", line, details={"stored": stored})


def _dtype(raised: Raised, stored: str) -> str:
    """Return the type in which the line stores a number; empty if neither the variable nor the text shows it."""
    node = ast.parse(stored or "None", mode="eval").body
    held = next((looked_at(node, frame) for frame, _ in raised.frames), None)
    says = re.search(TYPE, raised.text)
    name = says[says.lastindex or 0] if says else ""
    return str(getattr(held, "dtype", DTYPES.get(name, name))).removeprefix("torch.")


def _returned_none(raised: Raised) -> Reading | None:
    return Reading("returned None", raised.values()) if "assign a NoneType" in raised.text else None


def _signature(raised: Raised) -> Reading | None:
    """A call of the engine's with other arguments than the function takes."""
    called = re.search(MISCALLED, raised.text) if raised.kind == "TypeError" and not raised.frames else None
    if not called or called[1] == "__init__":
        return None
    kind = "signature" if called[1] in ("apply", "add_request", "update_state") else "three counted"
    return Reading(called[1] if called[1] in HOOKS else kind, "")


def _none(raised: Raised) -> Reading | None:
    if raised.kind not in ("AttributeError", "TypeError") or "NoneType" not in raised.text:
        return None
    values = raised.values()
    return Reading("this None" if values.endswith(" is None") else "None", values)


@unless_unreadable(None)
def _text_keys(raised: Raised) -> Reading | None:
    """A key of text that the line takes for a number; the line at fault is the loop that reads the keys."""
    if isinstance(raised.error, KeyError):
        held = [(table, index) for *_, table, index in raised.looked_up() if type(index) is int]
        is_text = any(str(index) in table for table, index in held)
        return Reading("text keys", raised.values()) if is_text else None
    for node in raised.nodes if re.search(r"\bstr\b", raised.text) else ():
        value = looked_at(node, raised.frame)
        key = next(iter(value), None) if isinstance(value, dict) else value
        if type(key) is str and key.lstrip("-").isdecimal() and any(key in table for table in raised.tables()):
            name = ast.unparse(node)
            loops = [loop for loop in ast.walk(syntax_of(raised.file)) if isinstance(loop, ast.For)]
            loops = [loop for loop in loops if name in map(ast.unparse, ast.walk(loop.target))]
            lines = [f"{raised.file}:{at}" for loop in loops if raised.first <= (at := loop.lineno) <= raised.number]
            if lines or value is not key:
                said = f"`{name}` {'is' if value is key else 'has the key'} {key!r}"
                return Reading("text keys", said, lines[-1] if lines else "")
    return None


@unless_unreadable(None)
def _past_the_list(raised: Raised) -> Reading | None:
    """An index that is the length of a list; the line at fault is the condition that lets it through.

    Such a condition asks for the index and stands around the line, or before it with a return, or in a property.
    """
    if raised.kind != "IndexError" or any(hasattr(value, "moved") for value in raised.frame.f_locals.values()):
        return None  # rows of a batch that changes
    for name, at, held, index in raised.looked_up():
        if isinstance(held, list | tuple) and index == len(held) and not at.isdigit():
            nodes = [*ast.walk(syntax_of(raised.file))]
            tests = [
                node.lineno
                for node in nodes
                if isinstance(node, ast.If) and raised.first <= node.lineno < raised.number and _reads(node.test, at)
                if raised.number <= (node.end_lineno or 0) or isinstance(node.body[-1], ast.Return | ast.Continue)
            ]
            tests = tests or [
                node.lineno  # of a property or a method that the condition asks
                for node in nodes
                if isinstance(node, ast.Compare) and {at, f"len({name})"} <= set(map(ast.unparse, ast.walk(node)))
            ]
            kind = "argument beyond" if re.search(ARGUMENTS, at) and not tests else "one beyond"
            return Reading(kind, raised.values(), f"{raised.file}:{max(tests)}" if tests else "")
    return None


@unless_unreadable(None)
def _no_entry(raised: Raised) -> Reading | None:
    """A key that a table of the class or the module lacks, which is the same for all requests."""
    owner = raised.frame.f_locals.get("self", raised.frame.f_locals.get("cls"))
    bases = (owner if isinstance(owner, type) else type(owner)).__mro__
    tables = [*raised.frame.f_globals.values(), *(value for base in bases for value in vars(base).values())]
    for *_, held, index in raised.looked_up():
        if isinstance(held, dict) and index not in held and repr(index) in raised.text:
            return Reading("no entry", raised.values()) if any(held is table for table in tables) else None
    return None


def _reads(test: ast.expr, text: str) -> bool:
    """Return True if a condition, or a part of it, is this text."""
    return any(isinstance(node, ast.expr) and ast.unparse(node) == text for node in ast.walk(test))


@unless_unreadable(None)
def _wrong_index(raised: Raised) -> Reading | None:
    """An index that is not just too large; the line at fault is the one that makes it."""
    kind = next((key for key, says in INDICES.items() if re.search(says, raised.text)), "")
    if not kind or any(isinstance(node, ast.Raise) for node in raised.statement.body):
        return None  # the author's own words
    if kind == "float number":
        return Reading(kind, raised.values())
    if kind == "k out of range":
        return Reading(kind, _too_many(raised) or raised.values())
    if kind == "float index":
        values, line = _empty_index(raised)
        return Reading(kind, values or raised.values(), line)
    values, line = _index_at(raised, -1, r"\binput_ids\b")
    drafts = any(holds(getattr(value, "input_ids", ()), -1) for _, value in raised.locals())
    return Reading("unknown draft" if drafts else kind, values, line) if values else None


@unless_unreadable(("", ""))
def _empty_index(raised: Raised) -> tuple[str, str]:
    """Return the empty tensor or list of a line, and the only line that can have made the tensor of a list."""
    for call in _tensors_of(raised.nodes):
        if looked_at(call.args[0], raised.frame) in ([], ()):
            return f"`{ast.unparse(call.args[0])}` is empty", ""
    empty = (node for node in raised.nodes if 0 in tuple(getattr(looked_at(node, raised.frame), "shape", ())))
    name = ast.unparse(next(empty))
    made = {(path, call) for path, node in raised.code() for call in _tensors_of([node])}
    function = range(raised.first, raised.number)
    here = {(path, call) for path, call in made if path == raised.file and call.lineno in function}
    sets = [
        (path, call) for path, call in here if linecache.getline(path, call.lineno).lstrip().startswith(f"{name} =")
    ]
    makers = sets or [*made - here]
    if len(makers) == 1:
        ((path, call),) = makers
        return f"`{name}` is empty, and made of `{ast.unparse(call.args[0])}`", f"{path}:{call.lineno}"
    return f"`{name}` is empty", ""


def _tensors_of(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Yield the calls that make tensors of what may be an empty list, without a type."""
    for node in nodes:
        if isinstance(node, ast.Call) and re.search(
            r"^((torch|np|numpy)\.)?(as_?)?([tT]ensor|array)$", ast.unparse(node.func)
        ):
            empty = node.args and not isinstance(node.args[0], ast.Constant) and not getattr(node.args[0], "elts", None)
            if empty and "dtype" not in [keyword.arg for keyword in node.keywords]:
                yield node


@unless_unreadable("")
def _too_many(raised: Raised) -> str:
    """Return how many entries a call takes of a row that has fewer; else an empty text."""
    for call in raised.nodes:
        if isinstance(call, ast.Call) and re.search(r"\.(topk|kthvalue|narrow)$", ast.unparse(call.func)):
            nodes = [*call.args, *(keyword.value for keyword in call.keywords), *ast.iter_child_nodes(call.func)]
            values = {ast.unparse(node): looked_at(node, raised.frame) for node in nodes}
            row, size = next((name, value.shape[-1]) for name, value in values.items() if getattr(value, "ndim", 0))
            counts = {
                name: int(value) for name, value in values.items() if getattr(value, "ndim", type(value)) in (0, int)
            }
            k = max(counts, key=lambda name: counts[name])
            return f"`{k}` is {counts[k]}, more than the {size} entries of `{row}`" if counts[k] > size else ""
    return ""


def _out_of_bounds(raised: Raised) -> Reading | None:
    """An index, or a mask, that a dimension of a tensor does not have."""
    beyond = re.search(BEYOND, raised.text)
    if beyond is None:
        return None
    index, size = (int(number) for number in beyond.groups() if number)
    kind = _not_in_logits(raised, index, size, beyond[3]) or ("one beyond" if index == size else raised.kind)
    values, line = _index_at(raised, index)
    compares = ""
    if kind in ("no token", "one beyond", "IndexError"):
        if _by_rank(raised, index):
            kind, values = "k out of range", values or f"the index is {index}, and the size {size}"
        elif index == size and (admits := _admits(raised, size)):
            kind, (compares, line) = "off by one", admits
    return Reading(kind, values, line, {"index": index, "size": size, "last": size - 1, "compares": compares})


def _not_in_logits(raised: Raised, index: int, size: int, mask: str | None) -> str:
    """Return the kind of an index that meets the rows or the vocabulary of the author's logits; else an empty text."""
    for name, value in raised.locals():
        shape = tuple(getattr(value, "shape", ())) if "logits" in name else ()
        if shape[:-1] == (size,):
            return "mask beyond rows" if mask else "slot as row" if index in raised.slots() else "no row"
        if shape[-1:] == (size,) and not mask:
            return "no token"
    return ""


@unless_unreadable(("", ""))
def _index_at(raised: Raised, index: int, made_of: str = NUMBERS) -> tuple[str, str]:
    """Return the variable of the line that holds an index, and ``file:line`` that makes it of such names."""
    names = {ast.unparse(node): node for node in raised.nodes if isinstance(node, ast.Name | ast.Attribute)}
    for name, node in names.items():
        held = looked_at(node, raised.frame) if "logits" not in name else None
        if holds(held, index) and (index >= 0 or type(held) is not int):  # as a dimension is
            makes = re.compile(rf"\s*{re.escape(name)} = .*({made_of})")
            made = [number for number, text in raised.above() if makes.match(text)]
            return f"`{name}` holds {index}", f"{raised.file}:{made[-1]}" if made else ""
    return "", ""


@unless_unreadable(False)
def _by_rank(raised: Raised, index: int) -> bool:
    """Return True if what the line indexes is the sorted entries of a row."""
    sorted_names = [
        ast.unparse(item.value)
        for item in raised.nodes
        if isinstance(item, ast.Subscript)
        if any(holds(looked_at(part, raised.frame), index) for part in ast.walk(item.slice))
    ]
    attributes = [node for node in raised.nodes if isinstance(node, ast.Attribute)]
    sorted_names += [ast.unparse(node.value) for node in attributes if node.attr in ("gather", "index_select")]
    makes = re.compile(rf"[\w ,.]*\b({'|'.join(map(re.escape, sorted_names))})\b[\w ,.]* = .*{RANKED}")
    made = sorted_names and any(makes.match(text) for _, text in raised.above())
    return bool(made or re.search(RANKED, " ".join(sorted_names)))


@unless_unreadable(None)
def _admits(raised: Raised, size: int) -> tuple[str, str] | None:
    """Return the comparison of the author's that lets the size through as an index, and its ``file:line``.

    One in a function that runs comes first.
    """
    admitting: list[tuple[bool, str, str]] = []
    frames = [frame for frame, _ in raised.frames]
    for file, node in raised.code():
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        for left, compares, right in zip(sides, getattr(node, "ops", ()), sides[1:], strict=False):
            admits = isinstance(compares, ast.LtE | ast.Gt), isinstance(compares, ast.GtE | ast.Lt)
            compared, limit = (left, right) if admits[0] else (right, left)
            is_attribute = ast.unparse(limit).startswith(("self.", "cls."))
            held = [frame for frame in frames if is_attribute or _runs(frame, file, left.lineno)]
            # A number beside the limit that is another one than the index is no index.
            is_index = "len(" not in ast.unparse(compared)
            is_index &= all(looked_at(compared, frame) in (None, size) for frame in held)
            if any(admits) and is_index and size in [looked_at(limit, frame) for frame in held]:
                runs = any(_runs(frame, file, left.lineno) for frame in frames)
                text = ast.unparse(ast.Compare(left, [compares], [right]))
                admitting.append((runs, f"`{text}`", f"{file}:{left.lineno}"))
    return max(admitting, key=lambda item: item[0])[1:] if admitting else None


def _runs(frame: FrameType, file: str, line: int) -> bool:
    return file == frame.f_code.co_filename and line in [number for *_, number in frame.f_code.co_lines()]


def _value_per_row(raised: Raised) -> Reading | None:
    """A tensor with a value for each row that meets logits ``[n, vocab]`` without a dimension of its own."""
    sizes = re.search(r"tensor a \((\d+)\) must match .*tensor b \((\d+)\)", raised.text)
    tensors = [value for _, value in raised.locals() if getattr(value, "ndim", 0) == 2]
    if sizes and any({*map(int, sizes.groups())} == {*value.shape} for value in tensors):
        return Reading("a value per row", raised.values())
    return None


def _attribute(raised: Raised) -> Reading | None:
    """An attribute that an object of the author's, or the configuration, lacks."""
    if not (lacks := re.search(r"'(\w+)' object has no attribute", raised.text)) or hasattr(builtins, lacks[1]):
        return None
    return Reading("config field" if lacks[1].endswith("Config") else "missing attribute", raised.values())


READERS: tuple[Callable[[Raised], Reading | None], ...] = (
    _prompt_first,
    _environment,
    _overflow,
    _returned_none,
    _signature,
    _none,
    _text_keys,
    _past_the_list,
    _no_entry,
    _wrong_index,
    _out_of_bounds,
    _value_per_row,
    _attribute,
)
"""In turn: the first that knows the exception explains it."""
