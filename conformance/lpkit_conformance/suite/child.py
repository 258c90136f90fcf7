"""The child process in which a plugin's checks run; see :mod:`lpkit_conformance.suite.supervisor` for its parent."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lpkit_conformance.processes import gpu, tree
from lpkit_conformance.processes.child import Parent
from lpkit_conformance.processes.codec import decode, encode
from lpkit_conformance.vllm_api.choose import STANDIN, prepare

if TYPE_CHECKING:
    from lpkit_conformance.settings.cases import Requests
    from lpkit_conformance.suite.in_process import Session


def work(parent: Parent) -> None:
    """Load the plugin, judge the checks that the parent names, and count the processes that the plugin left."""
    gc.disable()  # an import makes little but what stays
    import torch

    gc.freeze()
    gc.enable()
    job = parent.job()
    if job is None:  # pre-started, but not needed
        return
    judged_with = prepare(job["lost"])
    import lpkit_conformance.suite.in_process  # noqa: F401 - not before vLLM, or its stand-in
    from lpkit_conformance.checks.catalogue import by_code

    by_code()
    # A helper imports all this while its requests are searched for.
    if "target" not in job and (job := parent.job()) is None:
        return
    # One thread: sums come out the same every time, and several targets may be checked side by side.
    torch.set_num_threads(1)
    session = _load(parent, job, judged_with)
    if session is None:
        return
    while label := parent.job():
        parent.tell("started", label=label)
        result = session.judged(label)
        hint = session.hint() if result.never_active else ""
        parent.answer({"result": encode(result), "hint": hint, "notes": session.notes})
        if gpu.error_of(torch.device(session.plan.device)):
            return  # the parent starts another process for the other checks
    parent.answer(len(tree.children()))


def _load(parent: Parent, job: dict[str, Any], judged_with: str) -> Session | None:
    """Load the plugin, or the two plugins, and send the labels of the checks; or send why there are none."""
    import torch
    from lpkit.loading import LoadError, resolve_target

    from lpkit_conformance.errors import CaseError
    from lpkit_conformance.expectation.rank_process import as_second_rank
    from lpkit_conformance.settings.plan import Plan
    from lpkit_conformance.suite.in_process import Session
    from lpkit_conformance.suite.load_failures import load_failure
    from lpkit_conformance.vllm_api.facts import in_full
    from lpkit_conformance.vllm_api.releases import V2_PROCESSORS_SINCE, is_before
    from lpkit_conformance.vllm_api.runners import V1
    from lpkit_conformance.vllm_api.stub import lend_buffers

    parent.tell("ready", judged_with=judged_with)
    parent.heart.hung = job["hung"]

    def searching(requests: Requests | None) -> None:
        choices = session.first_rank() if requests and job["helped"] else None
        parent.tell("requests", requests=encode(requests), first_rank=choices)

    name, other = job["target"], job["other"]
    try:
        # Whatever this process starts from here on is the plugin's.
        plan = replace(decode(Plan, job["plan"]), standin=judged_with.startswith(STANDIN), bystanders=frozenset())
        lend_buffers(torch.device(plan.device))
        tree.adopt_orphans()
        os.environ.update(plan.environment)
        sys.path[:0] = job["path"]  # not before: what is ours must not come from a project's folder
        with as_second_rank(plan.device) if job["first_rank"] else nullcontext():
            session = Session(name, resolve_target(name), plan, job["first_rank"])
        session.searching = searching
        if other is not None:
            from lpkit_conformance.suite.pairs import PairSession

            name = other["target"]
            others = replace(plan, cases=decode(Plan, other["plan"]).cases)
            session = PairSession(session, Session(name, resolve_target(name), others), plan)
    except LoadError as error:
        parent.tell("unloadable", failure=encode(load_failure(name, error, judged_with.startswith(STANDIN))))
        return None
    except CaseError as error:
        problem = str(error)
    else:
        problem = ""
        if other is not None and not session.hosts:
            problem = f"no runner loads both {job['target']} and {name}"
        elif is_before(plan.release, V2_PROCESSORS_SINCE) and V1 not in session.interfaces:
            since = in_full(V2_PROCESSORS_SINCE)
            problem = f"it has V2's interface alone, and before {since} vLLM loads no custom processors on V2"
    if problem:
        parent.tell("unusable", problem=problem)
        return None
    interface = " and ".join(sorted(session.interfaces))
    parent.tell("loaded", interface=interface, hosts=session.hosts, requires=session.agenda.requires)
    return session
