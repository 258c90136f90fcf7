"""Compares a release's batch bookkeeping with lpkit's own definitions, on thousands of random operations.

The three small modules of the bookkeeping run in a child process, with all of their imports replaced by stubs: no
torch, and no other part of vLLM. The child reads the sources from its input.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from vllm_canary.source import Source

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "vllm.v1.sample.logits_processor"
MODULES = ("interface", "state", "builtin")
STUBBED = ("vllm", "torch", "numpy")
SAME = "as lpkit's"
RUNS = 400
CHILD = f"""
import sys
sys.path[:0] = {[str(ROOT / "conformance" / "tools"), str(ROOT / "sdk")]!r}
from vllm_canary import behaviour
print(behaviour.compare(sys.stdin.read()))
"""


def behaviour(source: Source) -> str:
    """``SAME``, or the first difference; "-" for a release without the modules."""
    paths = {name: f"{PACKAGE.replace('.', '/')}/{name}.py" for name in MODULES}
    files = {name: source.files.get(path, "") for name, path in paths.items()}
    if not files["interface"]:
        return "-"
    return _compared(json.dumps(files))


@functools.cache  # most releases have the same three files
def _compared(files: str) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-c", CHILD],
        input=files,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


class _Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The modules from ``files``, and empty ones for what they import."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = {f"{PACKAGE}.{name}": text for name, text in files.items()}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in STUBBED:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name not in self.files)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return ModuleType(spec.name) if spec.name in self.files else _Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in self.files:
            exec(compile(self.files[module.__name__], module.__name__, "exec"), module.__dict__)


class _Stub(ModuleType):
    """Every name in it is a separate class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


def compare(text: str) -> str:
    """In the child: run theirs and ours side by side."""
    from lpkit.interfaces import v1_interface as ours

    sys.meta_path.insert(0, _Stubs(json.loads(text)))
    theirs = ModuleType("theirs")
    for name in MODULES:
        module = importlib.import_module(f"{PACKAGE}.{name}")
        theirs.__dict__.update({key: value for key, value in vars(module).items() if not key.startswith("__")})
    for seed in range(RUNS):
        for program in (_builder, _helper):
            if program is _helper and not hasattr(theirs, "process_dict_updates"):
                continue
            theirs_said, wanted = program(theirs, random.Random(seed)), program(ours, random.Random(seed))
            for step, (left, right) in enumerate(zip(theirs_said, wanted, strict=True)):
                if left != right:
                    return f"{program.__name__[1:]}, seed {seed}, step {step}: {left}, lpkit's: {right}"
    return SAME


def _answer(call: Callable[[], Any]) -> str:
    try:
        return str(call())
    except Exception as error:
        return type(error).__name__


def _fields(update: Any) -> Any:
    if update is None:
        return None
    moved = [(source, to, kind.name) for source, to, kind in update.moved]
    return update.batch_size, list(update.removed), list(update.added), moved


def _builder(api: Any, rng: random.Random) -> list[str]:
    """Random operations on a ``BatchUpdateBuilder``, each with what it answers."""
    builder, answers = api.BatchUpdateBuilder(), []
    kinds = [api.MoveDirectionality.UNIDIRECTIONAL, api.MoveDirectionality.SWAP]
    for _ in range(40):
        row = rng.randrange(8)
        kind = rng.choice(kinds)
        operation = rng.choice(
            [
                lambda row=row: builder.removed_append(row),
                builder.has_removed,
                builder.peek_removed,
                builder.pop_removed,
                lambda: list(builder.removed),
                lambda row=row: builder.added.append((row, "params", [1], [])),
                lambda row=row, kind=kind: builder.moved.append((row, row + 1, kind)),
                lambda row=row: _fields(builder.get_and_reset(row)),
            ]
        )
        answers.append(_answer(operation))
    return answers


def _helper(api: Any, rng: random.Random) -> list[str]:
    """Random updates through ``process_dict_updates``, each with its answer and the state that it leaves."""
    state: dict[int, Any] = {}
    answers = []
    kinds = [api.MoveDirectionality.UNIDIRECTIONAL, api.MoveDirectionality.SWAP]

    def answer(update: Any) -> Any:
        return api.process_dict_updates(state, update, lambda params, *_: params)

    for _ in range(20):
        update = None
        if rng.random() < 0.9:
            rows = rng.sample(range(6), 6)
            added: list[Any] = [(row, rng.choice([None, 0, 1, 2]), [row], []) for row in rows[: rng.randrange(3)]]
            moved = [(rng.randrange(6), rng.randrange(6), rng.choice(kinds)) for _ in range(rng.randrange(4))]
            moved = [move for move in moved if move[0] != move[1]]
            update = api.BatchUpdate(batch_size=6, removed=rows[3 : 3 + rng.randrange(3)], added=added, moved=moved)
        answers.append(_answer(functools.partial(answer, update)))
        answers.append(str(sorted(state.items())))
    return answers
