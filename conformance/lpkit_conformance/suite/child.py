"""The child process in which a plugin's checks run; see :mod:`lpkit_conformance.suite.supervisor` for its parent."""

from __future__ import annotations

import contextlib
import gc
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lpkit_conformance.processes import tree
from lpkit_conformance.processes.child import Parent
from lpkit_conformance.vllm_api.choose import STANDIN, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lpkit_conformance.results import CheckResult, Status
    from lpkit_conformance.settings.plan import Plan


def work(parent: Parent) -> None:
    """Load the plugin and run its checks."""
    gc.disable()  # an import makes little but what stays
    import torch

    gc.freeze()
    gc.enable()
    job = parent.job()
    if job is None:  # it was started ahead, and in vain
        return
    # One thread: sums come out the same every time, and several targets may be checked side by side.
    torch.set_num_threads(1)
    judged_with = prepare(job["lost"])
    from lpkit.loading import LoadError, resolve_target

    from lpkit_conformance.discovery.releases import V2_PROCESSORS_SINCE, is_before
    from lpkit_conformance.errors import CaseError
    from lpkit_conformance.hosts.calls import HUNG
    from lpkit_conformance.oracle.second_rank import second_rank
    from lpkit_conformance.results import label_of
    from lpkit_conformance.settings.cases import Case
    from lpkit_conformance.suite.beside import Beside, possible
    from lpkit_conformance.suite.in_process import Session
    from lpkit_conformance.vllm_api.runners import V1
    from lpkit_conformance.vllm_api.stub import lend_buffers

    parent.tell("ready", judged_with=judged_with)
    try:
        plan = plan_of(job["plan"], job["done"], job["roots"], job["raised"], judged_with.startswith(STANDIN))
    except CaseError as error:
        parent.tell("unusable", problem=str(error))
        return
    lend_buffers(torch.device(plan.device))
    tree.adopt_orphans()
    HUNG.update(job["hung"])
    sys.path[:0] = job["path"]  # not before: what is ours must not come from a project's folder
    stack = contextlib.ExitStack()

    def beside(labels: Sequence[str], judge: Callable[[str], CheckResult]) -> Beside:
        return stack.enter_context(Beside(labels, judge))

    name, other = job["target"], job["other"]
    try:
        divided = other is None and possible(plan.device)
        session = Session(name, resolve_target(name).cls, plan, beside=beside if divided else None)
        if other is not None:
            from lpkit_conformance.suite.pairs import PairSession

            name = other["target"]
            cases = tuple(Case.parse(case) for case in other["cases"])
            session = PairSession(session, Session(name, resolve_target(name).cls, replace(plan, cases=cases)), plan)
    except CaseError as error:
        parent.tell("unusable", problem=str(error))
        return
    except LoadError as error:
        parent.tell("unloadable", **load_failure(name, error, plan.standin))
        return
    if other is not None and not session.hosts:
        parent.tell("unusable", problem=f"no runner loads both {job['target']} and {name}")
        return
    if is_before(plan.release, V2_PROCESSORS_SINCE) and V1 not in session.interfaces:
        problem = "it has V2's interface alone, and before 0.31.0 vLLM loads no custom processors on V2"
        parent.tell("unusable", problem=problem)
        return
    planned = {label_of(check.code, host): check for check, host in session.items}
    interface = " and ".join(sorted(session.interfaces))
    parent.tell("loaded", interface=interface, hosts=session.hosts, labels=list(planned))

    with stack:
        if any(check.compares_processes for label, check in planned.items() if label not in plan.done):
            session.second = stack.enter_context(second_rank())
        for result in session.results(lambda label: parent.tell("started", label=label)):
            hint = session.hint() if result.never_active else ""
            parent.tell("result", result={**result.to_json(), "never_active": result.never_active}, hint=hint)
    parent.tell("done", children=len(tree.children()), notes=session.notes)


def plan_of(
    data: dict[str, Any],
    done: dict[str, Status],
    roots: dict[str, list[str]],
    raised: list[tuple[str, str, str]],
    uses_standin: bool,
) -> Plan:
    """A ``Plan`` from its JSON form."""
    from lpkit_conformance.programs.as_json import program_from_json
    from lpkit_conformance.settings.cases import Case
    from lpkit_conformance.settings.plan import Plan

    return Plan(
        cases=tuple(Case.parse(case) for case in data["cases"]) or (Case(),),
        hosts=tuple(data["hosts"]) if data["hosts"] is not None else None,
        select=tuple(data["select"]),
        ignore=tuple(data["ignore"]),
        first=tuple(data["first"]),
        alone=data["alone"],
        vocab_size=data["vocab_size"],
        max_num_seqs=data["max_num_seqs"],
        seed=data["seed"],
        device=data["device"],
        standin=uses_standin,
        done=done,
        roots={label: tuple(codes) for label, codes in roots.items()},
        raised={(exception, location): code for exception, location, code in raised},
        program=program_from_json(data["program"]) if data["program"] else None,
        trace=tuple(data["trace"]) if data["trace"] else None,
        release=tuple(data["release"]) if data["release"] else None,
        bystanders=frozenset(),  # whatever this process starts from here on is the plugin's
    )


def load_failure(target: str, error: Any, uses_standin: bool) -> dict[str, Any]:
    """Why a target does not load. ``broken``: it exists and is at fault, which is a failed check."""
    from lpkit.loading import ImportFailedError, WrongInterfaceError

    from lpkit_conformance.instruments.author_lines import location_of
    from lpkit_conformance.vllm_api.parts import lacking

    cause = error.__cause__
    beyond = lacking(cause) if uses_standin else ""
    module = target.partition(":")[0]
    absent = (
        isinstance(cause, ModuleNotFoundError)
        and cause.name is not None
        and (module == cause.name or module.startswith(f"{cause.name}."))
    )
    broken = isinstance(error, WrongInterfaceError) or (isinstance(error, ImportFailedError) and not absent)
    problem, remedy = error.problem, error.remedy
    if beyond:
        problem, remedy = beyond, ""
    return {
        "broken": broken and not beyond,
        "problem": problem,
        "remedy": remedy,
        "location": location_of(cause) if cause is not None else "",
    }
