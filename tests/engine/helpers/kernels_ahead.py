"""Compiles the SDK's Triton kernels for GPUs that are not here: registers, spills and words of memory.

Triton's compiler and the assembler that it brings need no GPU. The counts come from the machine code.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import triton
from lpkit.kernels import triton_few as few
from lpkit.kernels import triton_hashes as hashes
from lpkit.kernels import triton_limits as limits
from lpkit.kernels import triton_masks as masks
from lpkit.kernels import triton_rows as rows
from lpkit.kernels import triton_sequences as sequences
from lpkit.kernels import triton_texts as texts
from lpkit.kernels import triton_tournament as tournament
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

CAPABILITIES = (80, 90, 100)
"""Compute capability 8.0, 9.0 and 10.0: A100, H100 and B200."""

REGISTERS = 65_536
"""Of a multiprocessor of each of these."""

THREADS = 2048

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"

FLOATS, INTEGERS, LONGS, FLAGS, NUMBER = "*fp32", "*i32", "*i64", "*i1", "i32"
PARTS = {"PARTS": rows.MOST_PARTS}
WHOLE, HALF = {"BLOCK": rows.BLOCK}, {"BLOCK": rows.BLOCK // 2}


@dataclass(frozen=True)
class Kernel:
    """One kernel as a module of :mod:`lpkit.kernels` launches it.

    Attributes:
        reads, writes: whether it goes over logits to read them, and to edit them.
        whole: whether it goes over whole rows, so that a compiler is told of aligned ones.
        passes: how often it goes over them.
        fused: whether a multiplication and an addition may be one instruction, which rounds once.
    """

    name: str
    function: Any
    types: dict[str, str]
    constants: dict[str, Any]
    writes: bool = False
    reads: bool = True
    whole: bool = True
    fused: bool = True
    warps: int = rows.WARPS
    passes: int = 1


_POINTERS = {
    **dict.fromkeys(("logits", "temperatures", "limits", "tops", "found", "highest", "sums", "least"), FLOATS),
    **dict.fromkeys(("distances", "thresholds", "leasts", "by_tops", "by_entropies", "biases", "held"), FLOATS),
    **dict.fromkeys(("lows", "highs", "exponents", "smoothings", "curves"), FLOATS),
    **dict.fromkeys(("seeds", "meant"), INTEGERS),
    "deviations": "*fp64",
    "ids": LONGS,
    "slots": LONGS,
    "own": FLAGS,
}


def _whole(
    name: str, function: Any, constants: dict[str, Any], writes: bool = False, reads: bool = True, **types: Any
) -> Kernel:
    given = {**_POINTERS, **types}
    arguments = {item: given.get(item, NUMBER) for item in function.arg_names if not item.isupper()}
    return Kernel(name, function, arguments, constants, writes, reads)


_SPAN = {"SPAN": rows.SPAN}
_LIMIT = {**_SPAN, **PARTS}


def _statistics(kind: str) -> dict[str, Any]:
    return {"KIND": kind, "BLOCK": limits.TILES[kind], **_SPAN}


def _by_limit(name: str, rule: str, **types: str) -> Kernel:
    given = {**dict.fromkeys(("first", "second", "third", "fourth"), FLOATS), **types}
    return replace(_whole(name, limits._mask_by_limit, {"RULE": rule, **_LIMIT}, writes=True, **given), fused=False)


DOUBLES = dict.fromkeys(("first", "second", "third", "fourth"), "*fp64")
EXCLUDE = replace(
    _whole("exclude_top_choices_, second", limits._exclude, {"KEPT": rows.KEPT, **_LIMIT}, writes=True), passes=2
)
WHOLE_ROWS = (
    _whole("highest logits", limits._statistics, _statistics("tops")),
    _whole("moments", limits._statistics, _statistics("moments")),
    _whole("shares", limits._statistics, _statistics("shares")),
    _by_limit("mask_far_below_top_", "far"),
    _by_limit("mask_deviations_below_top_", "deviating", **DOUBLES),
    _by_limit("mask_unlikely_", "unlikely"),
    EXCLUDE,
    _whole("dynamic_temperature_", limits._retemper, {**PARTS, **WHOLE}, writes=True),
    _whole("add_where_hashed_", masks._add_hashed, {"FIRST": 3, "SECOND": 5, **WHOLE}, writes=True, limits=INTEGERS),
    _whole("keep_ids_, second", masks._keep, {"IDS": rows.KEPT, **WHOLE}, writes=True, reads=False),
)


def _tournament(name: str, last: bool) -> Kernel:
    function = tournament._meet
    given = {"logits": FLOATS, "temperatures": FLOATS, "bits": FLOATS, "starts": LONGS}
    found = dict.fromkeys(("tops", "masses", "gains"), FLOATS)
    numbers = {item: NUMBER for item in function.arg_names if item not in {*given, *found} and not item.isupper()}
    constants = {"LAST": last, "BLOCK": tournament.BLOCK, **PARTS}
    return Kernel(name, function, {**given, **found, **numbers}, constants, writes=last, warps=tournament.WARPS)


TOURNAMENT = (
    _tournament("tournament_, each group of rounds", last=False),
    _tournament("tournament_, last", last=True),
)


def _few(
    name: str, function: Any, types: dict[str, str], fused: bool = True, warps: int = few.WARPS, **constants: Any
) -> Kernel:
    sizes = {item: NUMBER for item in function.arg_names if item not in types and not item.isupper()}
    constants = {"BLOCK": few.BLOCK, **constants} if "BLOCK" in function.arg_names else constants
    writes = name.startswith("write")
    return Kernel(name, function, {**types, **sizes}, constants, writes, whole=False, fused=fused, warps=warps)


def _given(function: Any, types: dict[str, str]) -> dict[str, str]:
    return {name: types[name] for name in function.arg_names if name in types}


def _matches(
    name: str, asked: str, since: bool, text: str = LONGS, drafts: int = 0, window: bool = False, sets: bool = False
) -> Kernel:
    types = {"tokens": text, "lasts": LONGS, "sizes": LONGS, "since": text, "windows": LONGS, "slots": LONGS}
    types |= {"drafts": text, "committed": text, "sets": "*u8", "set_of": LONGS}
    types |= {"own": FLAGS, "found": FLAGS if asked == "ngram" else LONGS}
    sizes: dict[str, Any] = {"ASKED": asked, "SINCE": since, "WINDOW": window, "SETS": sets, "DRAFTS": drafts}
    return _few(name, sequences._matches, types, **sizes, **sequences.SIZES)


def _text(name: str, function: Any, BLOCK: int, warps: int = few.WARPS, **types: str) -> Kernel:  # noqa: N803
    """Return a kernel that reads histories and columns by slot, where all other tensors are int64."""
    numbers = ("_step", "_stride", "_size", "octets", "listed", "nobody", "width", "vocab", "stride")
    others = [item for item in function.arg_names if not item.endswith(numbers) and not item.isupper()]
    known = {"logits": FLOATS, "own": FLAGS, "sets": "*u8", "penalties": FLOATS, **types}
    given = {item: known.get(item, LONGS) for item in others}
    return _few(name, function, given, warps=warps, DRAFTS=1, BLOCK=BLOCK)


_ELEMENTS = {"logits": FLOATS, "rows": LONGS, "ids": LONGS}
_WRITTEN = {**_ELEMENTS, "values": FLOATS, "number": "fp32"}
_SEEN = dict.fromkeys(("slots", "rows", "lasts", "tokens", "prompt_len", "total_len"), LONGS)
_SEEN |= {"outputs": FLAGS, **dict.fromkeys(("held", "prompts", "drafts", "committed"), INTEGERS)}
_BY_SLOT = {"logits": FLOATS, "slots": LONGS, "own": FLAGS}
_TEXT = {**_BY_SLOT, "tokens": INTEGERS, "prompts": INTEGERS, "lasts": LONGS, "values": FLOATS, "found": FLOATS}
_TEXT |= {"drafts": INTEGERS, "committed": INTEGERS}
_LOWERED = {**_TEXT, **dict.fromkeys(("repetitions", "presences", "frequencies"), FLOATS)}
FEW = (
    replace(_whole("keep_ids_, first", masks._kept, {"IDS": rows.KEPT}), whole=False, warps=1),
    _few("read", few._read, {**_ELEMENTS, "found": FLOATS}),
    _few("write", few._write, _WRITTEN, NUMBER=False),
    _few("write, one number", few._write, _WRITTEN, NUMBER=True),
    _few("mask_ids_", few._mask_ids, {**_BY_SLOT, "ids": LONGS, "held": FLOATS}, BLOCK=few.LOOKED_AT),
    _few("history", sequences._history, _SEEN, DRAFTS=0),
    _few("history with drafts", sequences._history, _SEEN, DRAFTS=1),
    _matches("match_lengths", "lengths", since=False),
    _matches("match_lengths, since", "lengths", since=True),
    _matches("completes_ngram", "ngram", since=True),
    _matches("ban_ngrams_, first", "ids", since=True, text=INTEGERS, window=True),
    _matches("ban_ngrams_ with drafts, first", "ids", since=True, text=INTEGERS, drafts=1, window=True, sets=True),
    _matches("penalize_repetitions_, first", "lengths", since=False, drafts=2, window=True, sets=True),
    _few(
        "penalize_, first",
        texts._lower,
        _given(texts._lower, _LOWERED),
        fused=False,
        DRAFTS=0,
        BLOCK=texts.COMPARED,
    ),
    _few("penalize_, second", texts._write_text, _given(texts._write_text, _TEXT), DRAFTS=1, BLOCK=texts.LISTED),
    _text("penalize_repetitions_, second", texts._lower_longest, BLOCK=texts.RIVALS),
    _text("leave_loop_, second", texts._leave, BLOCK=sequences.SPAN, added=FLOATS),
    _text("end_thinking_, first", texts._thought, BLOCK=sequences.SPAN),
    _text("force_sequence_, first", texts._due, warps=1, BLOCK=hashes.AT_ONCE),
    _text("exclude_sometimes_, first", texts._heads, warps=1, BLOCK=hashes.AT_ONCE, probabilities=FLOATS),
    _text("choose_", texts._choose, BLOCK=sequences.SPAN),
    _text("bias_by_context_, first", texts._seed, warps=1, BLOCK=hashes.AT_ONCE),
    _few("add_to_ids_", texts._add, {**_BY_SLOT, "ids": LONGS, "values": FLOATS, "found": FLOATS}, BLOCK=texts.LISTED),
)


@dataclass(frozen=True)
class Compiled:
    """The machine code of a kernel.

    Attributes:
        registers: of a thread.
        spills: instructions that keep a register in memory.
        loads, stores: instructions of the memory that logits lie in, by bits.
        fused: instructions that multiply and add, rounding once.
        warps: of a program.
        barriers: at which a program's threads wait for each other.
    """

    registers: int
    spills: int
    loads: Counter[int]
    stores: Counter[int]
    fused: int
    warps: int
    barriers: int

    @property
    def threads(self) -> int:
        """Threads that a multiprocessor holds at the same time."""
        program = 32 * self.warps
        return min(REGISTERS // (self.registers * program), THREADS // program) * program


def compiled(kernel: Kernel, capability: int, aligned: bool) -> Compiled:
    """Compile for a GPU; ``aligned``: vocabulary and stride are multiples of 16, which a compiler makes use of."""
    names = kernel.function.arg_names
    sixteen = set(rows.ALIGNED if kernel.whole else ()) - (set() if aligned else {"stride", "vocab"})
    source = ASTSource(
        kernel.function,
        {name: kernel.types.get(name, "constexpr") for name in names},
        {(names.index(name),): value for name, value in kernel.constants.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in sixteen & set(names)},
    )
    options = {"num_warps": kernel.warps, "enable_fp_fusion": kernel.fused}
    built = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return _read(built.asm["cubin"], kernel.warps)


def _read(cubin: bytes, warps: int) -> Compiled:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _tool("cuobjdump", "--dump-resource-usage", file.name)
        code = _tool("nvdisasm", file.name)
    registers = re.search(r"REG:(\d+)", usage)
    assert registers, usage
    spills = len(re.findall(r"\b(?:LDL|STL)\b", code))
    fused = len(re.findall(r"\bFFMA\b", code))
    return Compiled(
        int(registers[1]),
        spills,
        _words(code, "LDG"),
        _words(code, "STG"),
        fused,
        warps,
        len(re.findall(r"\bBAR\.SYNC", code)),
    )


def _tool(name: str, *arguments: str) -> str:
    done = subprocess.run([str(TOOLS / name), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def _words(code: str, instruction: str) -> Counter[int]:
    found = re.findall(rf"\b{instruction}(?:\.\w+)*", code)
    return Counter(next((bits for bits in (128, 64) if f".{bits}" in word), 32) for word in found)
