"""Shows what processors do: a child process runs them, so that a hang, an exit or a crash is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lpkit_conformance.errors import EngineUnavailable, UsageError
from lpkit_conformance.instruments.author_lines import location_in
from lpkit_conformance.processes.codec import decode
from lpkit_conformance.processes.supervise import ONE_THREAD, Event, Lost
from lpkit_conformance.results import label_of
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.project import entry_points_of, owner
from lpkit_conformance.show.child import played
from lpkit_conformance.show.results import Compared, Show, first_difference
from lpkit_conformance.vllm_api.attempts import run_child
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

CHILD = "lpkit_conformance.show.child:work"
ENGINE = "lpkit_conformance.show.engine:EngineSide"
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
        engine: serve the request in a real vLLM on the CPU.
        change: a parameter and its value: an argument of a processor, a field of SamplingParams, or ``N.PARAMETER`` of
            the N-th step of ``rules``.
        like: a request, as JSON, whose values replace those of the projects' cases.
    """

    rules: str = ""
    case: str = ""
    prompt: str = ""
    host: str = ""
    steps: int = 64
    seed: int = 0
    model: str = ""
    limit: float = LIMIT_SECONDS
    engine: bool = False
    change: tuple[str, Any] | None = None
    like: str = ""


def show(targets: Sequence[Any], options: ShowOptions, folder: Path | None = None, judged_with: str = "") -> Show:
    """Run a request with the targets and without them.

    Args:
        targets: names of processors, or classes; empty: the entry points of the project in ``folder``.
        judged_with: the source of this process's vLLM interfaces: it runs the request itself, without a limit of time,
            in place of a child process.

    Raises:
        UsageError, ProjectError, CaseError: there is nothing to show.
        EngineUnavailable: there is no vLLM for ``options.engine``.
    """
    if not 1 <= options.steps <= MOST_STEPS:
        raise UsageError(f"steps must be a number from 1 to {MOST_STEPS}, not {options.steps}")
    project = projects.find(folder or Path.cwd())
    names = list(dict.fromkeys(targets)) or ([] if options.rules else entry_points_of(project, "show"))
    if options.case:
        Case.parse(options.case)
    owned = [owner(name, project) for name in names]
    job = {
        "targets": [
            {"name": name if isinstance(name, str) else name.__name__, "spec": owning.spec(name), "case": owning.case}
            for name, owning in zip(names, owned, strict=True)
        ],
        "path": [folder for owning in owned[:1] for folder in owning.import_path],
        **{key: value for key, value in asdict(options).items() if key != "limit"},
    }
    events: list[Event] = []
    try:
        if judged_with:
            events.extend(played(job, judged_with))
        elif options.engine:
            _on_engine(job, options, events.append)
        else:
            run_child(CHILD, job, events.append, options.limit, ONE_THREAD)
    except Lost as loss:
        location = location_in(loss.stacks)
        events.append({"problem": f"{loss.what}{f' ({location})' if location else ''}{loss.last_words}"})
    fields = {name: value for event in events for name, value in event.items()}
    steps = [event["step"] for event in events if "step" in event]
    shown = decode(Show, {"seed": options.seed, **fields, "steps": steps})
    if not shown.model:
        raise UsageError(shown.problem)
    return shown


def _on_engine(job: dict[str, Any], options: ShowOptions, take: Callable[[Event], None]) -> None:
    """Take the events of a real vLLM, on the runner that was asked for or that the processors need."""
    from lpkit_conformance.engine.checking import require_vllm
    from lpkit_conformance.engine.losses import short
    from lpkit_conformance.engine.process import EngineProcess, ProcessLost
    from lpkit_conformance.engine.tiny import EngineError

    require_vllm()
    runner: Runner = V1 if options.host == V1 else V2
    needed: Runner | None = None
    try:
        while needed != runner:
            runner = needed or runner
            with EngineProcess(runner) as process:
                process.keep(ENGINE)
                event = process.ask("begin", runner, job)
                needed = event.get("host", runner)
                while event and needed == runner:
                    take(event)
                    event = process.ask("event", timeout=options.limit)
    except ProcessLost as error:
        raise error.loss from None
    except EngineError as error:
        raise EngineUnavailable(f"the engine ended: {short(error)}") from None


def show_failure(file: Path, cases: Sequence[str], limit: float) -> Show:
    """Replay a file that ``lpkit check`` or ``lpkit watch`` saved, and show its finding.

    Args:
        cases: arguments for the requests of a trace of ``lpkit watch``.
        limit: seconds that a call of the plugin may take.

    Raises:
        UsageError, FailureFileError, ProjectError, CaseError, TraceError: it cannot be replayed, or does not fail.
    """
    from lpkit_conformance.run import failures

    failure = failures.load(file, cases)
    result = failures.rerun(failure, limit)
    failed = next((check for check in result.checks if check.finding), None)
    if failed is None:
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
        check=failed,
    )


def compare(targets: Sequence[str], options: ShowOptions, parameter: str, values: Sequence[Any]) -> Show:
    """Show a request, and compare its reply with others that the same random numbers give.

    Args:
        parameter: its first value is shown in full, and compared with the others. Empty: the values are processors, and
            the targets' reply is compared with that of each of them. They get the same request, and arguments of their
            own where it has none.

    Raises:
        UsageError, ProjectError, CaseError: there is nothing to show.
    """
    if parameter:
        first, *others = (show(targets, replace(options, change=(parameter, value))) for value in values)
        names = [f"{parameter}={value}" for value in values[1:]]
    else:
        first, names = show(targets, options), list(values)
        others = [show([name], replace(options, host=first.host, like=first.case)) for name in names]
    compared = (
        Compared(name, s.reply, first_difference(s.reply, first.reply), s.receipts, s.problem)
        for name, s in zip(names, others, strict=True)
    )
    return replace(first, compared=tuple(compared))
