"""Failures that can be run again: a small JSON file holds the plugin's name, a case and a few operations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lpkit import __version__
from lpkit._nearest import did_you_mean

from lpkit_conformance import run, traces
from lpkit_conformance.checks.catalogue import all_checks, by_code
from lpkit_conformance.checks.lp9_engine import LP902
from lpkit_conformance.errors import FailureFileError, UsageError, UserError
from lpkit_conformance.processes.codec import decode
from lpkit_conformance.results import CheckResult, Report, Status, TargetResult
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.hosts import HOSTS, RUNNER_HOSTS
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.settings.project import Project, owner
from lpkit_conformance.suite.supervisor import CALL_SECONDS, check_target
from lpkit_conformance.traces.patterns import PATTERNS, RECORDED

SCHEMA = "lpkit.failure/1"

FOLDER = Path(".lpkit", "failures")
"""The folder for saved failures of ``lpkit check``, below the current folder."""

KEYS: dict[str, type] = {
    "schema": str,
    "lpkit": str,
    "target": str,
    "check": str,
    "host": str,
    "case": dict,
    "others": list,
    "seed": int,
    "vocab_size": int,
    "max_num_seqs": int,
    "manner": dict,
    "program": dict,
    "trace": str,
    "pattern": str,
    "repeats": bool,
    "found": dict,
}
OPTIONAL = frozenset({"lpkit", "others", "manner", "program", "trace", "pattern", "repeats", "found"})
WORDS = {str: "a string", int: "a whole number", dict: "an object", list: "a list", bool: "true or false"}


Outcome = Literal["fixed", "failing", "silent", "unknown"]
"""``silent``: the operations ran and did not reproduce the failure, which proves no fix."""


@dataclass(frozen=True)
class Failure:
    """A saved failure.

    Attributes:
        target: as ``lpkit check`` received it.
        code, host: the check and its runner.
        plan: the case, the sizes, the seed and the operations.
        repeats: False if these operations do not fail each time they are run: passing then proves nothing.
        seen: False if lpkit has not seen it fail: only the server has.
    """

    target: str
    code: str
    host: str
    plan: Plan
    repeats: bool = True
    seen: bool = True


# -- saving ------------------------------------------------------------------------------------------------------


def save(report: Report, folder: Path) -> Report:
    """Write a file for every failure that has operations; the report that comes back names them.

    Raises:
        OSError: if the folder cannot be written.
    """

    def saved(target: TargetResult) -> TargetResult:
        return replace(target, checks=tuple(save_check(target.target, check, folder) for check in target.checks))

    return replace(report, targets=tuple(map(saved, report.targets)))


def save_check(target: str, check: CheckResult, folder: Path = FOLDER) -> CheckResult:
    """Write a failure's file, if it has operations; what comes back names it.

    Raises:
        OSError: if the folder cannot be written.
    """
    if check.finding is None or check.finding.scenario is None or check.status == "expected":
        return check
    folder.mkdir(parents=True, exist_ok=True)
    if folder == FOLDER:
        (folder.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    name = re.sub(r"[^\w.-]+", "_", target).strip("._")[-80:]
    path = folder / f"{name}-{check.code}-{check.host}.json"
    path.write_text(to_text(target, check), encoding="utf-8")
    return replace(check, finding=replace(check.finding, saved=path.as_posix()))


def to_text(target: str, check: CheckResult) -> str:
    """Return the file of a failure: JSON, one operation per line."""
    finding = check.finding
    assert finding is not None and finding.scenario is not None
    scenario = {key: value for key, value in finding.scenario.items() if key != "manner" or value}
    program = scenario.pop("program", None)
    head = {"schema": SCHEMA, "lpkit": __version__, "target": target, "check": check.code, "host": check.host}
    fields = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in {**head, **scenario}.items()]
    if program is not None:
        fields.append(f'  "program": {_program_text(program)}')
    result = {"summary": finding.summary, **finding.where, "expected": finding.expected, "got": finding.got}
    fields.append(f'  "found": {json.dumps(result)}')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _program_text(program: Mapping[str, Any]) -> str:
    lines = ",\n".join(f"      {json.dumps(operation)}" for operation in program["operations"])
    inner = [f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in program.items() if key != "operations"]
    inner.append(f'    "operations": [\n{lines}\n    ]')
    return "{\n" + ",\n".join(inner) + "\n  }"


# -- loading -----------------------------------------------------------------------------------------------------


def load(path: Path, cases: Sequence[str] = ()) -> Failure:
    """Load the failure in a file: a saved failure, or a trace that ``lpkit watch`` saved.

    Args:
        cases: arguments with which a trace's requests use the plugin, instead of those in it. A saved failure ignores
            them.

    Raises:
        FailureFileError: names the file and the invalid entry, with the nearest valid name.
        TraceError, UsageError, CaseError, ProjectError: the trace cannot be replayed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        near = _files_like(path) if isinstance(error, FileNotFoundError) else ""
        raise FailureFileError(f"cannot read {path}: {error.strerror}", near) from None
    except UnicodeDecodeError:
        raise FailureFileError(f"{path} is not a text file") from None
    if _is_trace(text):
        return _of_trace(path, cases)
    try:
        data = json.loads(text)
    except ValueError as error:
        raise FailureFileError(f"{path} is not JSON: {error}") from None
    if cases:
        raise UsageError(f"{path} holds its case: omit --case")
    try:
        return from_json(data)
    except UserError as error:
        raise FailureFileError(f"{path}: {error}") from None


def _is_trace(text: str) -> bool:
    """Return True if the first line is the header of a trace."""
    try:
        head = json.loads(text.partition("\n")[0])
    except ValueError:
        return False
    return isinstance(head, Mapping) and head.get("schema") == traces.SCHEMA


def _of_trace(path: Path, cases: Sequence[str]) -> Failure:
    """Return the failure of the processor that the trace names, as the current folder's project has it."""
    trace = traces.load(path)
    target = trace.settings.get("watch", {}).get("processor")
    if not isinstance(target, str):
        raise UsageError(f"{path} was not saved by lpkit watch: it names no processor to blame")
    options = run.Options(cases=tuple(cases))
    plan = run.with_trace(run.plan_for(options, _owner(target)), options, path)
    return Failure(target, plan.select[0], trace.runner, plan, seen=False)


def from_json(data: object) -> Failure:
    """The failure in the parsed file.

    Raises:
        FailureFileError, CaseError: what does not fit.
    """
    if not isinstance(data, Mapping):
        raise FailureFileError(f"a failure is a JSON object, not {type(data).__name__}")
    schema = data.get("schema")
    if schema != SCHEMA:
        what = f"has the schema {schema!r}" if schema else "has no schema"
        raise FailureFileError(f"this {what}; `lpkit replay` reads {SCHEMA}, which `lpkit check` writes for failures")
    for key, value in data.items():
        if key not in KEYS:
            raise FailureFileError(f"unknown key {key!r}", did_you_mean(key, KEYS))
        if type(value) is not KEYS[key]:
            raise FailureFileError(f"{key} must be {WORDS[KEYS[key]]}, not {value!r}")
    source = ("trace", "pattern") if "trace" in data or "pattern" in data else ("program",)
    missing = [key for key in KEYS if key not in data and (key not in OPTIONAL or key in source)]
    if missing:
        raise FailureFileError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    code, host = data["check"], data["host"]
    checks = {check.code: check for check in all_checks()}
    if code not in checks:
        raise FailureFileError(f"there is no check {code!r}", did_you_mean(code, checks))
    if host not in checks[code].hosts:
        runs = ", ".join(checks[code].hosts) or "no host"
        raise FailureFileError(f"{code} runs on {runs}, not on {host!r}")
    if "trace" in source:
        _check_trace(data, code, host)
    if data["vocab_size"] < 128 or data["vocab_size"] % 128:
        raise FailureFileError(f"vocab_size must be a multiple of 128, not {data['vocab_size']}")
    if data["max_num_seqs"] < 1:
        raise FailureFileError(f"max_num_seqs must be at least 1, not {data['max_num_seqs']}")
    trace = (data["trace"], data["pattern"]) if "trace" in source else None
    fields = {**data, "cases": [data["case"]], "hosts": [host], "select": [code], "trace": trace}
    plan = decode(Plan, fields)
    return Failure(data["target"], code, host, plan, data.get("repeats", True))


def _check_trace(data: Mapping[str, Any], code: str, host: str) -> None:
    names = traces.names(HOSTS[host].interface)
    if "program" in data:
        raise FailureFileError("a failure has a program or a trace, not both")
    if not by_code()[code].replays:
        replaying = " and ".join(check.code for check in all_checks() if check.replays)
        raise FailureFileError(f"{code} replays no recorded trace; {replaying} does")
    if data["pattern"] == RECORDED:
        traces.load(Path(data["trace"]))
        return
    if data["trace"] not in names:
        raise FailureFileError(f"there is no trace {data['trace']!r} for {host}", did_you_mean(data["trace"], names))
    if data["pattern"] not in PATTERNS:
        raise FailureFileError(f"there is no pattern {data['pattern']!r}", did_you_mean(data["pattern"], PATTERNS))


def _files_like(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else FOLDER
    files = sorted(file.as_posix() for file in folder.glob("*.json")) if folder.is_dir() else []
    return did_you_mean(path.as_posix(), files) or (f"there are {', '.join(files[:5])}" if files else "")


# -- running -----------------------------------------------------------------------------------------------------


def rerun(failure: Failure, limit: float | None = None) -> TargetResult:
    """Run exactly these operations again, in a separate process; the result has one check, or an error.

    Raises:
        ProjectError: if the current folder's pyproject.toml cannot be used.
    """
    spec, path = whereabouts(failure)
    result = check_target(spec, _at_home(failure), path, limit=limit or CALL_SECONDS)
    silent = bool(result.checks) and all(check.never_active for check in result.checks)
    return run.proven(replace(result, target=failure.target, error="" if silent else result.error), failure.plan)


def rerun_on_engine(failure: Failure, limit: float | None = None) -> TargetResult:
    """Serve the requests of these operations, or of this trace, in a tiny real vLLM engine, alone and in the batch.

    The engine schedules requests itself, so some operations cannot be requested from it. Notes of the result list those
    operations, or the share of the trace that the engine reproduced.

    Raises:
        FailureFileError: the failure is not of a runner.
        EngineUnavailable: vLLM is absent or broken.
        ProjectError: if the current folder's pyproject.toml cannot be used.
    """
    from lpkit_conformance.engine import checking
    from lpkit_conformance.engine.played import left_to_the_engine

    program = failure.plan.program
    if failure.host not in RUNNER_HOSTS:
        raise FailureFileError(f"it failed on the host {failure.host}, which is not a runner of vLLM")
    checking.require_vllm()
    spec, path = whereabouts(failure)
    plan = replace(_at_home(failure), select=tuple(check.code for check in all_checks("vllm") if check.replays))
    result = checking.check_target(spec, plan, path, limit=limit)
    notes = [f"left to the engine: {', '.join(left_to_the_engine(program))}"] if program is not None else []
    return run.proven(replace(result, target=failure.target, notes=(*result.notes, *notes)), failure.plan)


def _at_home(failure: Failure) -> Plan:
    """Return the plan with what the project in the current folder gives its plugin."""
    project, plan = _owner(failure.target), failure.plan
    return replace(plan, environment=project.environment, model=project.model, tokenizer=project.tokenizer)


def whereabouts(failure: Failure) -> tuple[str, list[str]]:
    """Return the target as Python finds it, and additional folders that it is imported from.

    Raises:
        ProjectError: if the current folder's pyproject.toml cannot be used.
    """
    project = _owner(failure.target)
    return project.spec(failure.target), project.import_path


def _owner(target: str) -> Project:
    return owner(target, projects.find(Path.cwd()))


OUTCOMES: dict[Status, Outcome] = {"passed": "fixed", "skipped": "silent", "failed": "failing", "advice": "failing"}


def outcome(failure: Failure, result: TargetResult) -> Outcome:
    """State if the failure still occurs."""
    for check in result.checks:
        if (check.code, check.host) == (failure.code, failure.host) and not result.error:
            known_outcome = OUTCOMES.get(check.status, "unknown")
            return "silent" if known_outcome == "fixed" and not failure.repeats else known_outcome
    return "unknown"


def outcome_on_engine(result: TargetResult) -> Outcome:
    """State if the failure occurs in a real engine."""
    if any(check.status == "failed" for check in result.checks):
        return "failing"
    if result.error:
        return "unknown"
    acted = any(check.status == "passed" and check.code == LP902.code for check in result.checks)
    return "fixed" if acted else "silent"
