"""Benches every plugin of ``reference_plugins/`` and prints the tables of ``docs/evidence/performance.md``.

    python benchmarks/reference_set.py [--batch 8,256] [--vocab 151936] [--device cuda] [--json FILE]
    python benchmarks/reference_set.py --only lpkit-dry --json FILE      # measure it again, and keep the others
    python benchmarks/reference_set.py --device cuda --one-process      # where the machine is lent for minutes
    python benchmarks/reference_set.py --show FILE      # the tables again, from an earlier run
    python benchmarks/reference_set.py --show FILE --digest docs/evidence/performance.json      # and the plot's numbers

Run it where vLLM and transformers are installed, or their columns stay empty.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from lpkit_conformance.bench import run as benches
from lpkit_conformance.bench.results import Times
from lpkit_conformance.bench.run import Options, run
from lpkit_conformance.processes.supervise import Event
from lpkit_conformance.report.bench import data, duration, ratio
from lpkit_conformance.report.plot import seconds
from plugins_here import FOLDERS

ALTERNATIVES = str(Path(__file__).with_name("reference_alternatives.py"))
FEW = 4
DETAILED = {(8, 151_936), (256, 151_936)}
"""Of many sizes, those that get their own table."""

KINDS = ("vLLM V1", "vLLM V2", "transformers", "request by request")
"""How the names of alternatives begin."""


def in_this_process(entry: str, job: dict[str, Any], take: Callable[[Event], None], *_: Any) -> None:
    """Instead of a child process: a plugin that hangs or exits ends the run."""
    job.setdefault("lost", "")

    class Here:
        @staticmethod
        def job() -> dict[str, Any]:
            return job

        @staticmethod
        def tell(event: str, **told: Any) -> None:
            take({"event": event, **told})

    module, name = entry.split(":")
    getattr(importlib.import_module(module), name)(Here())


def measure(options: Options, kept: Path | None, only: list[str]) -> dict[str, Any]:
    """The reports of all plugins as one, written to ``kept`` after each of them; ``only`` these are measured."""
    whole: dict[str, Any] = {"targets": []}
    if only and kept and kept.exists():
        whole = json.loads(kept.read_text(encoding="utf-8"))
        whole["targets"] = [target for target in whole["targets"] if target["target"] not in only]
    for folder in FOLDERS:
        if only and folder.name not in only:
            continue
        print(folder.name, file=sys.stderr, flush=True)
        found = run((), options, folder)
        for target in found.targets:
            if target.error:
                print(f"  {target.error}", file=sys.stderr)
        report = found.to_json()
        targets = [*whole["targets"], *report["targets"]]
        whole = {**report, "targets": sorted(targets, key=lambda target: str(target["target"]))}
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
    if len(sizes) > FEW:
        print("\n### `apply` on V1, all sizes\n")
        grid(report)
    for number, (batch, vocab) in enumerate(sizes):
        if len(sizes) > FEW and (batch, vocab) not in DETAILED:
            continue
        print(f"\n### {batch} requests, {vocab:,} tokens\n")
        kinds = [kind for kind in KINDS if any(map(partial(_against, kind), _sides(report, number)))]
        on_a_gpu = settings["device"] != "cpu"
        numbers = _GPU_NUMBERS if on_a_gpu else ["V1", "V2", "passes", "update", "idle", "to device"]
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


def digest(report: dict[str, Any]) -> str:
    """The medians of ``apply`` on V1, and where they come from, as JSON with one list per line."""
    where = report["environment"]
    batches = sorted({point["batch"] for point in report["targets"][0]["points"]})
    vocabs = sorted({point["vocab"] for point in report["targets"][0]["points"]})
    times: dict[str, dict[str, list[float]]] = {}
    for target in report["targets"]:
        of_sizes = times.setdefault(target["target"], {})
        for point in sorted(target["points"], key=lambda point: (point["vocab"], point["batch"])):
            median = _targets(point["sides"])["v1"]["apply"]["median"]
            of_sizes.setdefault(str(point["vocab"]), []).append(float(f"{median:.3g}"))
    quick = " --quick" * (report["settings"]["rounds"] < Options().settings["rounds"])
    command = f"--batch {','.join(map(str, batches))} --vocab {','.join(map(str, vocabs))}"
    kept = {
        "date": where["created"][:10],
        "processor": where["processor"],
        "device": where["device"].upper(),
        "threads": where["threads"],
        "cores": where["cores"],
        "versions": _versions(where),
        "context": report["settings"]["context"],
        "command": f"python benchmarks/reference_set.py {command}{quick}",
        "measures": "median seconds of one apply on V1",
        "batches": batches,
        "seconds": times,
    }
    return re.sub(r"\[[^\]]+\]", lambda found: json.dumps(json.loads(found[0])), json.dumps(kept, indent=1)) + "\n"


def _targets(sides: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The plugin itself, by runner; a side that memory did not suffice for is missing."""
    return {side["host"]: side for side in sides if side["kind"] == "target"}


def _versions(where: dict[str, Any]) -> dict[str, str]:
    return {name: where.get(name, where.get(f"{name}-cpu", "-")) for name in ("torch", "vllm", "transformers")}


def _sides(report: dict[str, Any], number: int) -> list[list[dict[str, Any]]]:
    return [target["points"][number]["sides"] for target in report["targets"]]


def _against(kind: str, sides: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first alternative of a kind that was measured."""
    return next((side for side in sides if side["name"].startswith(kind) and side["versus_target"]), None)


def _on_a_cpu(sides: list[dict[str, Any]], kinds: list[str]) -> list[str]:
    targets = _targets(sides)
    first = targets["v1"]
    cells = [_time(targets[host]["apply"]) for host in ("v1", "v2")]
    cells += [ratio(first["versus_floor"]), _time(first["churn"]), _time(first["idle"]), data(first["to_device"])]
    for kind in kinds:
        found = _against(kind, sides)
        cells.append(ratio(found["versus_target"]) if found else "")
    return cells


_GPU_NUMBERS = ["V1", "V2", "its host's part", "the GPU's work", "by its traffic", "launches"]


def _on_a_gpu(sides: list[dict[str, Any]], kinds: list[str]) -> list[str]:
    """Alternatives: how much longer than V1 a call takes, and how much more than V2 the GPU works on it."""
    targets = _targets(sides)
    second = targets["v2"]
    cells = [_time(targets["v1"]["apply"]), *(_time(second[key]) for key in ("apply", "launch", "gpu"))]
    cells += [_predicted(sides), str(second["launches"])]
    for kind in kinds:
        found = _against(kind, sides)
        work = f", {ratio(found['gpu']['median'] / second['gpu']['median'])}" if found and found["gpu"] else ""
        cells.append(f"{ratio(found['versus_target'])}{work}" if found else "")
    return cells


def _predicted(sides: list[dict[str, Any]]) -> str:
    """What V2's kernels should take, where they tell."""
    found = next((side["predicted"] for side in sides if side["host"] == "v2" and side["predicted"]), None)
    return f"{seconds(found['least'])} to {seconds(found['most'])}" if found else ""


def _time(value: dict[str, Any] | None) -> str:
    return duration(Times(**value) if value else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", default="8,256")
    parser.add_argument("--vocab", default="151936")
    parser.add_argument("--quick", action="store_true", help="fewer turns: a third of the time")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="PLUGIN", choices=[folder.name for folder in FOLDERS])
    parser.add_argument("--show", type=Path)
    parser.add_argument("--digest", type=Path)
    parser.add_argument("--one-process", action="store_true", help="start no process for each plugin")
    options = parser.parse_args()
    if options.show:
        report = json.loads(options.show.read_text(encoding="utf-8"))
    else:
        numbers = {key: tuple(int(n) for n in getattr(options, key).split(",")) for key in ("batch", "vocab")}
        found = Options(
            batches=numbers["batch"],
            vocabs=numbers["vocab"],
            device=options.device,
            quick=options.quick,
            alternatives=ALTERNATIVES,
        )
        with mock.patch.object(benches, "run_child", in_this_process) if options.one_process else nullcontext():
            report = measure(found, options.json, options.only)
    show(report)
    if options.digest:
        options.digest.write_text(digest(report), encoding="utf-8")


if __name__ == "__main__":
    main()
