"""Bench every plugin of ``reference_plugins/``, and print the tables of ``docs/evidence/performance.md``.

    python benchmarks/reference_set.py [--batch 8,256] [--vocab 151936] [--device cuda] [--json FILE]
    python benchmarks/reference_set.py --device cuda --one-process      # where the machine is lent for minutes
    python benchmarks/reference_set.py --show FILE      # the tables again, from an earlier run

Run it where vLLM and transformers are installed, or their columns stay empty.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from lpkit_conformance.bench import run as benches
from lpkit_conformance.bench.results import Times
from lpkit_conformance.bench.run import BenchOptions, run
from lpkit_conformance.processes.supervise import Event
from lpkit_conformance.report.bench import duration, ratio
from plugins_here import FOLDERS

ALTERNATIVES = str(Path(__file__).with_name("reference_alternatives.py"))
DETAILED = (8, 256)
"""Batches that get a table of their own."""

KINDS = ("vLLM V1", "vLLM V2", "transformers")
"""First words of the names of alternatives."""


def in_this_process(entry: str, job: dict[str, Any], take: Callable[[Event], None], *_: Any) -> None:
    """Instead of a child process: a plugin that hangs or exits ends the run."""
    job.setdefault("lost", "")

    class Here:
        @staticmethod
        def job() -> dict[str, Any]:
            return job

        @staticmethod
        def tell(event: str, **fields: Any) -> None:
            take({"event": event, **fields})

    module, name = entry.split(":")
    getattr(importlib.import_module(module), name)(Here())


def measure(options: BenchOptions, kept: Path | None) -> dict[str, Any]:
    """The reports of all plugins as one, written to ``kept`` after each of them."""
    whole: dict[str, Any] = {"targets": []}
    for folder in FOLDERS:
        print(folder.name, file=sys.stderr, flush=True)
        bench = run((), options, folder)
        for target in bench.targets:
            if target.error:
                print(f"  {target.error}", file=sys.stderr)
        report = bench.to_json()
        whole = {**report, "targets": [*whole["targets"], *report["targets"]]}
        if kept:
            kept.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return whole


def show(report: dict[str, Any]) -> None:
    """Markdown, a table per size."""
    where, settings = report["environment"], report["settings"]
    versions = _versions(where)
    print(
        f"{where['created'][:10]}, {where['device']}, {where['processor']}, "
        f"{where['threads']} thread of {where['cores']} cores, "
        f"torch {versions['torch']}, vLLM {versions['vllm']}, transformers {versions['transformers']}, "
        f"context {settings['context']}; load of the machine "
        f"{where['load'][0]:.0f} on {where['cores']} cores when it began."
    )
    sizes = [(point["batch"], point["vocab"]) for point in report["targets"][0]["points"]]
    print("\n### `apply` on V1, all sizes\n")
    grid(report)
    for number, (batch, vocab) in enumerate(sizes):
        if batch not in DETAILED:
            continue
        print(f"\n### {batch} requests, {vocab:,} tokens\n")
        points = [target["points"][number] for target in report["targets"]]
        kinds = [kind for kind in KINDS if any(_against(kind, point["sides"]) for point in points)]
        on_a_gpu = settings["device"] != "cpu"
        numbers = _GPU_NUMBERS if on_a_gpu else ["V1", "V2", "passes", "update", "idle"]
        names = ["plugin", *numbers, *kinds]
        print("| " + " | ".join(names) + " |")
        print("|---" + "|---:" * (len(names) - 1) + "|")
        for target in report["targets"]:
            sides = target["points"][number]["sides"]
            cells = (_on_a_gpu if on_a_gpu else _on_a_cpu)(sides, kinds)
            print("| " + " | ".join([target["target"], *cells]) + " |")


def grid(report: dict[str, Any]) -> None:
    """One line per plugin and vocabulary, one column per batch."""
    points = [(target["target"], point) for target in report["targets"] for point in target["points"]]
    batches = sorted({point["batch"] for _, point in points})
    print("| plugin | tokens | " + " | ".join(map(str, batches)) + " |")
    print("|---|---:" + "|---:" * len(batches) + "|")
    times: dict[tuple[str, int], dict[int, str]] = {}
    for name, point in points:
        first = _targets(point["sides"]).get("v1")
        times.setdefault((name, point["vocab"]), {})[point["batch"]] = _time(first["apply"]) if first else "-"
    for (name, vocab), found in times.items():
        cells = [found.get(batch, "-") for batch in batches]
        print(f"| {name} | {vocab:,} | " + " | ".join(cells) + " |")


def _targets(sides: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The plugin itself, by runner; a side that memory did not suffice for is missing."""
    return {side["host"]: side for side in sides if side["kind"] == "target"}


def _versions(where: dict[str, Any]) -> dict[str, str]:
    return {name: where.get(name, where.get(f"{name}-cpu", "-")) for name in ("torch", "vllm", "transformers")}


def _against(kind: str, sides: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first alternative of a kind that was measured."""
    return next((side for side in sides if side["name"].startswith(kind) and side["versus_target"]), None)


def _on_a_cpu(sides: list[dict[str, Any]], kinds: list[str]) -> list[str]:
    targets = _targets(sides)
    first = targets["v1"]
    cells = [_time(targets[host]["apply"]) for host in ("v1", "v2")]
    cells += [ratio(first["versus_floor"]), _time(first["churn"]), _time(first["idle"])]
    for kind in kinds:
        rival = _against(kind, sides)
        cells.append(ratio(rival["versus_target"]) if rival else "")
    return cells


_GPU_NUMBERS = ["V1", "V2", "its host's part", "the GPU's work", "launches"]


def _on_a_gpu(sides: list[dict[str, Any]], kinds: list[str]) -> list[str]:
    """Alternatives: how much longer than V1 a call takes, and how much more than V2 the GPU works on it."""
    targets = _targets(sides)
    second = targets["v2"]
    cells = [_time(targets["v1"]["apply"]), *(_time(second[key]) for key in ("apply", "launch", "gpu"))]
    cells.append(str(second["launches"]))
    for kind in kinds:
        rival = _against(kind, sides)
        work = f", {ratio(rival['gpu']['median'] / second['gpu']['median'])}" if rival and rival["gpu"] else ""
        cells.append(f"{ratio(rival['versus_target'])}{work}" if rival else "")
    return cells


def _time(value: dict[str, Any] | None) -> str:
    return duration(Times(**value) if value else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", default="8,256")
    parser.add_argument("--vocab", default="151936")
    parser.add_argument("--quick", action="store_true", help="fewer turns: a third of the time")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--one-process", action="store_true", help="start no process for each plugin")
    options = parser.parse_args()
    if options.show:
        report = json.loads(options.show.read_text(encoding="utf-8"))
    else:
        numbers = {key: tuple(int(n) for n in getattr(options, key).split(",")) for key in ("batch", "vocab")}
        bench_options = BenchOptions(
            batches=numbers["batch"],
            vocabs=numbers["vocab"],
            device=options.device,
            quick=options.quick,
            alternatives=ALTERNATIVES,
        )
        with mock.patch.object(benches, "run_child", in_this_process) if options.one_process else nullcontext():
            report = measure(bench_options, options.json)
    show(report)


if __name__ == "__main__":
    main()
