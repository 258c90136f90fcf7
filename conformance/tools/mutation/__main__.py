"""Mutation testing of the suite: how many mutants of correct processors and of the SDK does ``lpkit check`` catch?

    make mutation MUTATION_OPTIONS='[--only FILE...]'

Results are kept in DIR by mutant, so that a run can be stopped and resumed, and repeated after a change of the suite
for the survivors alone (``--again survived``). Linux only: it forks.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from mutation import judge, mutants, page
from mutation.survivors import EQUIVALENT, GPU_ONLY, OTHER_RULE

ROOT = Path(__file__).resolve().parents[3]
PROCESSORS = tuple(f"tests/conformance/zoo/{name}.py" for name in judge.CORRECT)
SDK = tuple(
    f"sdk/lpkit/{name}.py"
    for name in (
        "portable/row_slots",
        "history/v1",
        "history/v2",
        "portable/on_v1",
        "portable/on_v2",
        "history/rows",
        "columns/column",
    )
)
PROBES = (
    "WitnessRows",
    "WitnessSparse",
    "PortableRepetition",
    "PortableMinP",
    "AdapterPrompt",
    "PortableMinTokens",
    "PortableCopyBoost",
    "PortableBan",
    "AdapterLength",
    "WitnessBan",
    "WitnessLists",
    "WitnessCallable",
    "WitnessText",
)
"""Sparse and dense, each kind of history, both stages, all kinds of columns, and the request-level adapter with and
without a history."""


def probes_for(mutant: mutants.Mutant) -> list[str]:
    """The processors that a mutant can show in."""
    if mutant.file not in PROCESSORS:
        return list(PROBES)
    from zoo.registry import CORRECT

    top = getattr(importlib.import_module(f"zoo.{Path(mutant.file).stem}"), mutant.top)
    found = []
    for item in CORRECT:
        if (isinstance(top, type) and issubclass(item.target, top)) or mutant.top in inspect.getsource(item.target):
            found.append(item.name)
    return found


def per_line(file: str, wanted: int | None) -> int | None:
    """How many mutants of each line to judge; None: all."""
    if wanted is None:
        return 1 if file in PROCESSORS else 3
    return wanted or None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where results are kept")
    parser.add_argument("--per-line", type=int, help="mutants of each line; 0 for all (default: SDK 3, processors 1)")
    parser.add_argument("--only", nargs="*", default=[], help="files whose names contain one of these")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", nargs="*", default=[], help="statuses to judge anew")
    parser.add_argument("--keep", nargs="*", default=[], help="mutants that need not be judged anew")
    parser.add_argument(
        "--settled", action="store_true", help="those that survivors.py explains too: anew, and by the slow checks"
    )
    parser.add_argument("--depth", type=int, default=2, help="0: quick checks; 1: slow ones too; 2: all")
    parser.add_argument("--minutes", type=float, default=0, help="start no mutant after that time")
    parser.add_argument("--page", type=Path, help="write the report")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    files = [file for file in (*SDK, *PROCESSORS) if not options.only or any(part in file for part in options.only)]
    made = [mutants.make(ROOT, file, per_line(file, options.per_line), file not in PROCESSORS) for file in files]
    store = options.work / "results.json"
    results: dict[str, dict[str, object]] = json.loads(store.read_text()) if store.exists() else {}
    settled = {**EQUIVALENT, **GPU_ONLY, **OTHER_RULE, "original": ""}
    results = {
        name: outcome
        for name, outcome in results.items()
        if outcome["status"] not in options.again or (name in settled and not options.settled) or (name in options.keep)
    }
    todo = [mutant for item in made for mutant in item.mutants if mutant.id not in results]
    # The explained ones pass every check, which takes longest: last, and without the slow checks.
    todo.sort(key=lambda mutant: mutant.id in settled)
    depths = {mutant.id: 0 for mutant in todo if mutant.id in settled and not options.settled}
    judge_all(todo, results, options, store, depths)
    if options.page:
        options.page.write_text(page.render(made, results, PROBES, judge.CPU_SECONDS))


def judge_all(
    todo: list[mutants.Mutant],
    results: dict[str, dict[str, object]],
    options: argparse.Namespace,
    store: Path,
    depths: Mapping[str, int],
) -> None:
    """Judge the mutants, some at a time; each child inherits torch from this process.

    ``depths`` has the mutants that are not judged as deep as ``--depth`` says.
    """
    import torch

    torch.set_num_threads(1)
    probes = {mutant.id: probes_for(mutant) for mutant in todo}
    # Children must import their own copies.
    for name in [name for name in sys.modules if name.split(".")[0] in judge.PACKAGES]:
        del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if Path(entry).name not in ("sdk", "conformance")]
    begun = time.monotonic()
    free: list[judge.Overlay] = []
    for n in range(options.jobs):
        folder = options.work / f"overlay{n}"
        shutil.rmtree(folder, ignore_errors=True)
        free.append(judge.Overlay(ROOT, folder))
    warm(free)
    running: dict[int, tuple[judge.Overlay, mutants.Mutant | None]] = {}
    queue = list(todo)
    baseline: dict[str, object] | None = results.get("original")
    if baseline is None:
        overlay = free.pop()
        running[judge.fork_and_judge(overlay, "", None, None, options.depth)] = (overlay, None)
    while queue or running:
        late = options.minutes and time.monotonic() - begun > 60 * options.minutes
        while queue and free and not late:
            mutant, overlay = queue.pop(0), free.pop()
            depth = depths.get(mutant.id, options.depth)
            process = judge.fork_and_judge(overlay, mutant.file, mutant.source, probes[mutant.id], depth)
            running[process] = (overlay, mutant)
        if not running:
            break
        process, status = os.wait()
        overlay, done = running.pop(process)
        outcome = asdict(judge.collect(overlay, status))
        if done is None:
            results["original"] = outcome
        else:
            judge.replace(overlay.copy_of(done.file), (ROOT / done.file).read_text("utf-8"))
            results[done.id] = outcome
            print(f"{len(queue):5} left  {outcome['status']:9} {outcome['by']:11} {done.id} {done.owner}:{done.line}")
            print(f"{'':11} - {done.before}\n{'':11} + {done.after}", flush=True)
        free.append(overlay)
        store.write_text(json.dumps(results, indent=1))


def warm(overlays: list[judge.Overlay]) -> None:
    """Leave bytecode of everything but the mutated module."""
    import compileall

    for overlay in overlays:
        compileall.compile_dir(overlay.folder, quiet=1)


if __name__ == "__main__":
    main()
