"""Shows what processors do: a child process runs them, so that one that hangs, exits or crashes is told as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lpkit_conformance import failures
from lpkit_conformance.codec import decode
from lpkit_conformance.errors import UsageError
from lpkit_conformance.instruments.author_lines import location_in
from lpkit_conformance.processes.supervise import ONE_THREAD, Event, Lost
from lpkit_conformance.results import StepView, label_of
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.project import Project, entry_points_of
from lpkit_conformance.show.results import Compared, Show, first_difference
from lpkit_conformance.vllm_api.attempts import run_child

CHILD = "lpkit_conformance.show.child:work"
MOST_STEPS = 1024
LIMIT_SECONDS = 20.0


@dataclass(frozen=True)
class ShowOptions:
    """The user's options.

    Attributes:
        rules: a document for the steps of the plugin lpkit-rules, which run before the targets.
        case: SamplingParams of the request, as JSON; empty: the projects' first cases.
        prompt: a text; empty: the model's own.
        host: the runner; empty: the newest one whose interface all targets have.
        model: a model of transformers; empty: the built-in model.
        limit: seconds that a call of a processor may take.
        change: a parameter and its value: an argument of a processor, a field of SamplingParams, or ``N.PARAMETER`` of
            the N-th step of ``rules``.
    """

    rules: str = ""
    case: str = ""
    prompt: str = ""
    host: str = ""
    steps: int = 64
    seed: int = 0
    model: str = ""
    limit: float = LIMIT_SECONDS
    change: tuple[str, Any] | None = None


@dataclass
class _Taken:
    show: Show
    steps: list[StepView]


def show(targets: Sequence[str], options: ShowOptions, folder: Path | None = None) -> Show:
    """Run a request with the targets, or with the entry points of the project in ``folder``, and without them.

    Raises:
        UsageError, ProjectError, CaseError: there is nothing to show.
    """
    if not 1 <= options.steps <= MOST_STEPS:
        raise UsageError(f"steps must be a number from 1 to {MOST_STEPS}, not {options.steps}")
    project = projects.find(folder or Path.cwd())
    names = list(dict.fromkeys(targets)) or ([] if options.rules else entry_points_of(project, "show"))
    if options.case:
        Case.parse(options.case)
    owned = [project if project and project.owns(name) else None for name in names]
    job = {
        "targets": [_target(name, own) for name, own in zip(names, owned, strict=True)],
        "path": [folder for own in owned[:1] if own for folder in own.import_path],
        **{key: value for key, value in asdict(options).items() if key != "limit"},
    }
    taken = _Taken(Show(seed=options.seed, names=tuple(names)), [])
    try:
        run_child(CHILD, job, partial(_take, taken), options.limit, ONE_THREAD)
    except Lost as loss:
        location = location_in(loss.stacks)
        problem = f"{loss.what}{f' ({location})' if location else ''}{loss.last_words}"
        taken.show = replace(taken.show, problem=problem)
    if not taken.show.model:
        raise UsageError(taken.show.problem)
    return replace(taken.show, steps=tuple(taken.steps))


def show_failure(file: Path, cases: Sequence[str], limit: float) -> Show:
    """Replay a file that ``lpkit check`` or ``lpkit watch`` saved, and show its finding.

    Args:
        cases: arguments for the requests of a trace of ``lpkit watch``.
        limit: seconds that a call of the plugin may take.

    Raises:
        UsageError, FailureFileError, ProjectError, CaseError, TraceError: it cannot be replayed, or does not fail.
    """
    failure = failures.load(file, cases)
    result = failures.rerun(failure, limit)
    found = next((check for check in result.checks if check.finding), None)
    if found is None:
        label = label_of(failure.code, failure.host)
        raise UsageError(f"{file}: {result.error or f'{label} does not fail now'}", "`lpkit replay` says more")
    return Show(
        model="lpkit's simulated model",
        toy=False,
        host=failure.host,
        judged_with=result.judged_with,
        case=failure.plan.cases[0].text,
        seed=failure.plan.seed,
        names=(failure.target,),
        check=found,
    )


def compare(targets: Sequence[str], options: ShowOptions, parameter: str, values: Sequence[Any]) -> Show:
    """Show the request with the first value of a parameter, and compare it with the others.

    Raises:
        UsageError, ProjectError, CaseError: there is nothing to show.
    """
    first, *others = (show(targets, replace(options, change=(parameter, value))) for value in values)
    compared = (
        Compared(f"{parameter}={value}", s.reply, first_difference(s.reply, first.reply), s.receipts, s.problem)
        for value, s in zip(values[1:], others, strict=True)
    )
    return replace(first, compared=tuple(compared))


def _target(name: str, own: Project | None) -> dict[str, Any]:
    spec = own.entry_points.get(name, name) if own else name
    return {"name": name, "spec": spec, "case": own.cases[0] if own and own.cases else {}}


def _take(taken: _Taken, event: Event) -> None:
    kind = event.pop("event")
    if kind == "step":
        taken.steps.append(decode(StepView, event["step"]))
    else:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in event.items()
        }
        taken.show = replace(taken.show, **fields)
