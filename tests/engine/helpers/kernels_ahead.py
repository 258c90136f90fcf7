"""Compiles the SDK's Triton kernels for GPUs that are not here: registers, spills and words of memory.

Triton's compiler and the assembler that it brings need no GPU. The counts come from the machine code.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from lpkit.kernels import fused, launching
from lpkit.kernels.recording import Entries
from lpkit.portable.by_slot import CHOICE, BySlot
from lpkit.portable.rules import steps
from lpkit.runtime import make_config
from lpkit_cite_from_prompt import CiteFromPrompt
from own_edits import OWN_EDITS, OWN_PROCESSES
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import JITFunction

CAPABILITIES = (80, 90, 100)
"""Compute capability 8.0, 9.0 and 10.0: A100, H100 and B200."""

REGISTERS = 65_536
"""Of a multiprocessor of each of these."""

THREADS = 2048

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"

CPU = torch.device("cpu")
NUMBERS = {torch.float32: "fp32", torch.float64: "fp64", torch.bool: "i1", torch.uint8: "u8"}
NUMBERS |= {torch.int32: "i32", torch.int64: "i64"}
OPTIONS = ("num_warps", "enable_fp_fusion")


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is launched: for tensors of these types, and with these constants and options of the compiler."""

    function: Any
    types: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, Any], ...]

    @property
    def rule(self) -> str:
        """Name of the function that a kernel applies; empty if it is no such kernel."""
        return getattr(dict(self.constants).get("RULE"), "__name__", "")

    @property
    def name(self) -> str:
        named = [self.function.__name__, self.rule]
        named += [str(value) for key, value in self.constants if key in ("KIND", "ASKED", "LAST", "MODE")]
        return " ".join(filter(None, named))


@cache
def own_steps() -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Return the function, and the text and the columns, of authors' own steps."""
    config = make_config(max_num_seqs=2, vocab_size=64)
    classes = [*OWN_EDITS.values(), *OWN_PROCESSES.values(), CiteFromPrompt]
    return {cls.__name__: BySlot(cls(config, CPU, False), ())._record()[0] for cls in classes}


@cache
def kernels() -> tuple[Kernel, ...]:
    """Return the kernels that functions of :mod:`lpkit.kernels` launch, without running them."""
    found = vars(fused.together((*fused.WHOLE_ROWS, *fused.FEW)))
    logits, slots = torch.zeros(3, 1000), torch.zeros(3, dtype=torch.int64)
    *_, with_drafts = found["examples"](CPU, True)
    entries = Entries(slots, torch.zeros(3, 1, dtype=torch.bool), with_drafts)
    with launching.recorded() as launches, mock.patch.object(JITFunction, "run", lambda *_, **__: None):
        fused._go_over(fused.together(fused.WHOLE_ROWS), logits)
        fused._try_few(fused.together(fused.FEW), CPU)
        read = {name: [dtype for dtype, _ in columns] for name, (_, columns, _) in steps().items()}
        for name, dtypes in {**read, CHOICE: [torch.int64] * 5}.items():
            columns = [torch.zeros(3, 1, dtype=dtype) for dtype in dtypes]
            found[name](logits, *columns, entries=entries)
        for name, given in own_steps().values():
            found[name](logits, *given, entries=entries)
    return tuple(dict.fromkeys(map(_kernel, launches)))


def _kernel(item: launching.Launch) -> Kernel:
    types = tuple(
        f"*{NUMBERS[arg.dtype]}" if isinstance(arg, torch.Tensor) else "fp32" if isinstance(arg, float) else "i32"
        for arg in item.args
    )
    options = {key: item.options[key] for key in OPTIONS if key in item.options}
    constants = {key: value for key, value in item.options.items() if key not in OPTIONS}
    return Kernel(item.kernel, types, tuple(constants.items()), tuple(options.items()))


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


def compiled(kernel: Kernel, capability: int) -> Compiled:
    """Compile for a GPU, and rows at any stride."""
    function = kernel.function
    aligned = {item.name for item in function.params if not (item.do_not_specialize or item.is_constexpr)}
    source = ASTSource(
        function,
        dict(zip(function.arg_names, (*kernel.types, *["constexpr"] * len(kernel.constants)), strict=True)),
        {(function.arg_names.index(name),): value for name, value in kernel.constants},
        {(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned - {"stride", "vocab"}},
    )
    options = {"enable_fp_fusion": True, **dict(kernel.options)}
    built = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return _read(built.asm["cubin"], built.metadata.num_warps)


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
