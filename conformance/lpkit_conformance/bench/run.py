"""Runs benches in child processes: a plugin that hangs, exits or crashes ends its own bench, not the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lpkit_conformance.bench.budget import OlderBench
from lpkit_conformance.bench.results import Bench, TargetBench
from lpkit_conformance.errors import UsageError
from lpkit_conformance.instruments.author_lines import location_in
from lpkit_conformance.processes.codec import decode
from lpkit_conformance.processes.supervise import Event, Lost
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import resolve_device
from lpkit_conformance.settings.project import Project, entry_points_of, owner
from lpkit_conformance.vllm_api.attempts import run_child

BATCHES = (1, 8, 64, 256, 1024)
VOCABS = {"32k": 32_000, "128k": 128_256, "152k": 151_936}
"""Vocabularies of Llama 2, Llama 3 and Qwen, by their usual names."""

QUICK_BATCHES = (8, 256)
QUICK_VOCABS = (128_256,)
SECONDS, QUICK_SECONDS = 1.0, 0.3
"""Measuring time of a candidate at each size."""
LIMIT_SECONDS = 300.0

CHILD = "lpkit_conformance.bench.child:work"


@dataclass(frozen=True)
class BenchOptions:
    """The user's options; empty options leave the choice to the project and the defaults.

    Attributes:
        budget: the ``--json`` file of an older run, which this run must not exceed. Sizes that the user omits come from
            the file.
        alternatives: a Python file with a function ``alternatives``. It takes the target's ``module:Class``, its
            ``extra_args`` and the device. It yields a :class:`~lpkit_conformance.hosts.steady.Candidate` for each
            alternative that is not a processor, or a text that explains why an alternative is missing.
    """

    case: str = ""
    hosts: tuple[str, ...] | None = None
    batches: tuple[int, ...] = ()
    vocabs: tuple[int, ...] = ()
    device: str = "cpu"
    threads: int = 1
    context: int = 256
    share: float = 1.0
    quick: bool = False
    seed: int = 0
    against: tuple[str, ...] = ()
    against_cases: tuple[str, ...] = ()
    alternatives: str = ""
    limit: float = LIMIT_SECONDS
    budget: Path | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Settings for the child, which the report repeats."""
        return {
            "batches": list(self.batches or (QUICK_BATCHES if self.quick else BATCHES)),
            "vocabs": list(self.vocabs or (QUICK_VOCABS if self.quick else VOCABS.values())),
            "device": resolve_device(self.device),
            "threads": self.threads,
            "context": self.context,
            "share": self.share,
            "seconds": QUICK_SECONDS if self.quick else SECONDS,
            "rounds": 3 if self.quick else 5,
            "seed": self.seed,
        }


Tell = Callable[[str], None]
"""Called with what is measured next, and with an empty text after each size; for a terminal."""


def run(
    targets: Sequence[str],
    options: BenchOptions,
    folder: Path | None = None,
    tell_of: Callable[[str], Tell] = lambda target: lambda label: None,
) -> Bench:
    """Measure every target, or the entry points of the project in ``folder``.

    Raises:
        UsageError, ProjectError, CaseError: before anything runs.
    """
    budget = OlderBench(options.budget) if options.budget else None
    if budget is not None:
        batches, vocabs = (tuple(budget.settings[name]) for name in ("batches", "vocabs"))
        options = replace(options, batches=options.batches or batches, vocabs=options.vocabs or vocabs)
    project = projects.find(folder or Path.cwd())
    names = list(dict.fromkeys(targets)) or entry_points_of(project, "measure")
    if len(options.against_cases) > len(options.against):
        raise UsageError("there are more --against-case than --against: each belongs to the --against before it")
    jobs = [_job(name, owner(name, project), options) for name in names]
    benches: list[TargetBench] = []
    environment: dict[str, Any] = {}
    for name, job in zip(names, jobs, strict=True):
        bench, where = _measure(job, tell_of(name), options.limit)
        benches.append(bench)
        environment = environment or where
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    whole = Bench(tuple(benches), {"created": created, **environment}, options.settings)
    return replace(whole, worse=budget.compare(whole)) if budget else whole


def _job(name: str, project: Project, options: BenchOptions) -> dict[str, Any]:
    case: Any = options.case or project.case
    against = [
        {"name": spec, "spec": spec, "case": options.against_cases[i] if i < len(options.against_cases) else case}
        for i, spec in enumerate(options.against)
    ]
    for item in project.against:
        against.append({"name": item.target, "spec": item.target, "case": item.case or case})
    for value in (case, *(item["case"] for item in against)):
        Case.parse(value)
    return {
        "target": {"name": name, "spec": project.spec(name), "case": case},
        "against": against,
        "alternatives": options.alternatives,
        "path": project.import_path,
        "hosts": list(options.hosts or project.hosts or ()),
        **options.settings,
    }


def _measure(job: dict[str, Any], tell: Tell, limit: float) -> tuple[TargetBench, dict[str, Any]]:
    """Return what a child reports as fields of a bench, and its environment."""
    fields: dict[str, Any] = {"target": job["target"]["name"], "points": [], "label": "", "environment": {}}

    def take(event: Event) -> None:
        if point := event.pop("point", None):
            fields["points"].append(point)
        if point or "label" in event:
            tell(event.get("label", ""))
        fields.update(event)

    try:
        run_child(CHILD, job, take, limit, {"OMP_NUM_THREADS": str(job["threads"])})
    except Lost as loss:
        fields["error"] = _blame(loss, fields)
    bench = decode(TargetBench, fields)
    # The target lacks a number for this reason; a missing number of an alternative is not an error.
    sides = (side for point in bench.points for side in point.sides if side.kind == "target" and side.problem)
    problem = next((f"{side.name}: {side.problem}" for side in sides), "")
    return replace(bench, error=bench.error or problem), fields["environment"]


def _blame(loss: Lost, fields: Mapping[str, Any]) -> str:
    where = f" while measuring {fields['label']}" if fields["label"] else ""
    text = f"{loss.what}{where}" if fields["environment"] else f"the measuring process did not start: {loss.what}"
    location = location_in(loss.stacks)
    return f"{text}{f' ({location})' if location else ''}{loss.last_words}"
