"""Mutation testing of the checks: how many mutants of the SDK and of correct processors does ``lpkit check`` catch?

    make mutation MUTATION_OPTIONS='[--only FILE...] [--again survived]'

Results are kept by mutant, so a run can be stopped and resumed, or repeated for the survivors after a change of the
checks. Prints the figures of docs/evidence/mutation.md at the end.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutation import mutants, page
from mutation.judge import PROCESSORS, ROOT, Outcome, Overlay

SDK = tuple(
    f"sdk/lpkit/{name}.py"
    for name in (
        "portable/row_slots",
        "history/staged",
        "history/reading",
        "portable/on_v1",
        "portable/on_v2",
        "history/rows",
        "columns/column",
    )
)
PER_LINE = {"sdk": 3, "tests": 1}
"""Mutants of each line that are judged, chosen by a hash of the change."""

PROBES = (
    *("WitnessRows", "WitnessSparse", "PortableRepetition", "PortableMinP", "AdapterPrompt", "PortableMinTokens"),
    *("PortableCopyBoost", "PortableBan", "AdapterLength", "WitnessBan", "WitnessLists", "WitnessCallable"),
    "WitnessText",
)
"""Sparse and dense, each kind of history, both stages, all kinds of columns, and the request-level adapter with and
without a history."""


def probes_for(mutant: mutants.Mutant) -> list[str]:
    """Return the processors that a mutant can show in: for a processor, itself and its subclasses."""
    if mutant.file not in PROCESSORS:
        return list(PROBES)
    from zoo.registry import CORRECT

    top = getattr(importlib.import_module(".".join(Path(mutant.file).with_suffix("").parts[2:])), mutant.top)
    return [
        item.name
        for item in CORRECT
        if (isinstance(top, type) and issubclass(item.target, top)) or mutant.top in inspect.getsource(item.target)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the results")
    parser.add_argument("--only", nargs="*", default=[""], help="files whose names contain one of these")
    parser.add_argument("--again", nargs="*", default=[], help="statuses to judge again, except explained survivors")
    parser.add_argument("--quick", action="store_true", help="leave out the slow checks")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    files = [file for file in (*SDK, *PROCESSORS) if any(part in file for part in options.only)]
    made = [mutant for file in files for mutant in mutants.make(ROOT, file, PER_LINE[file.partition("/")[0]])]
    store = options.work / "results.json"
    results: dict[str, Outcome] = json.loads(store.read_text()) if store.exists() else {}
    explained = page.explained()
    results = {name: it for name, it in results.items() if it["status"] not in options.again or name in explained}
    overlays: SimpleQueue[Overlay] = SimpleQueue()
    for n in range(options.jobs):
        overlays.put(Overlay(options.work / f"overlay{n}"))
    if "original" not in results:
        overlay = overlays.get()
        results["original"] = overlay.judge(SDK[0], (ROOT / SDK[0]).read_text("utf-8"), PROBES, options.quick)
        overlays.put(overlay)
    if results["original"]["status"] != "survived":
        sys.exit(f"the checks fail without a mutant: {results['original']}")

    def judged(mutant: mutants.Mutant) -> Outcome:
        overlay = overlays.get()
        try:
            # Explained survivors pass every check, which takes longest.
            quick = options.quick or mutant.id in explained
            return overlay.judge(mutant.file, mutant.source, probes_for(mutant), quick)
        finally:
            overlays.put(overlay)

    todo = [mutant for mutant in made if mutant.id not in results]
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, outcome in zip(todo, pool.map(judged, todo), strict=True):
            results[mutant.id] = outcome
            store.write_text(json.dumps(results, indent=1))
            print(f"{outcome['status']:9} {outcome['by']:12} {mutant.id} {mutant.change}", file=sys.stderr, flush=True)
    print(page.render(files, made, results))


if __name__ == "__main__":
    main()
