"""The child process in which a plugin's checks run; see :mod:`lpkit_conformance.suite.supervisor` for its parent."""

from __future__ import annotations

import contextlib
import gc
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from lpkit_conformance.processes import tree
from lpkit_conformance.processes.child import Parent
from lpkit_conformance.vllm_api.choose import STANDIN, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lpkit_conformance.results import CheckResult
    from lpkit_conformance.settings.cases import Requests


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
    from lpkit_conformance.expectation.rank_process import second_rank
    from lpkit_conformance.facts.vllm import in_full
    from lpkit_conformance.results import label_of
    from lpkit_conformance.settings.plan import Plan
    from lpkit_conformance.subject.calls import HUNG
    from lpkit_conformance.suite.beside import Beside, possible
    from lpkit_conformance.suite.in_process import Session
    from lpkit_conformance.suite.load_failures import load_failure
    from lpkit_conformance.vllm_api.runners import V1
    from lpkit_conformance.vllm_api.stub import lend_buffers

    parent.tell("ready", judged_with=judged_with)
    try:
        # Whatever this process starts from here on is the plugin's.
        plan = replace(Plan.from_json(job["plan"]), standin=judged_with.startswith(STANDIN), bystanders=frozenset())
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

    def searching(requests: Requests | None) -> None:
        parent.tell("requests", requests=requests and requests.to_json())

    name, other = job["target"], job["other"]
    try:
        divided = other is None and possible(plan.device)
        session = Session(name, resolve_target(name).cls, plan, beside=beside if divided else None)
        session.searching = searching
        if other is not None:
            from lpkit_conformance.suite.pairs import PairSession

            name = other["target"]
            others = replace(plan, cases=Plan.from_json(other["plan"]).cases)
            session = PairSession(session, Session(name, resolve_target(name).cls, others), plan)
    except CaseError as error:
        parent.tell("unusable", problem=str(error))
        return
    except LoadError as error:
        parent.tell("unloadable", failure=asdict(load_failure(name, error, plan.standin)))
        return
    if other is not None and not session.hosts:
        parent.tell("unusable", problem=f"no runner loads both {job['target']} and {name}")
        return
    if is_before(plan.release, V2_PROCESSORS_SINCE) and V1 not in session.interfaces:
        since = in_full(V2_PROCESSORS_SINCE)
        problem = f"it has V2's interface alone, and before {since} vLLM loads no custom processors on V2"
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
