"""A child that judges a plugin with vLLM, even if importing vLLM ends it: another then runs without it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from lpkit_conformance.processes.supervise import Child, Event, Lost


def run_child(
    entry: str,
    job: dict[str, Any],
    take: Callable[[Event], None],
    seconds: float,
    env: Mapping[str, str],
    ahead: Child | None = None,
    then: Callable[[Child], None] = lambda child: None,
) -> None:
    """Run a job in a child process. The child's first event reports that :func:`.choose.prepare` made ``import vllm``
    work.

    Args:
        entry: the function, as ``module:function``.
        job: its argument. After a loss while importing vLLM, ``lost`` is set to the reason, which the next child passes
            to ``prepare``.
        seconds: the longest time between two events.
        ahead: the first process, if it has been started already.
        then: called with the child once it has done the job, for further jobs.

    Raises:
        Lost: the child did not finish.
        ModuleNotFoundError: torch is missing. This process does not need it, but the child does.
    """
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    job.setdefault("lost", "")
    while True:
        spoken = False
        with ahead or Child(entry, env) as child:
            ahead = None
            child.send(job, seconds)
            try:
                for event in child.events(seconds):
                    spoken = True
                    take(event)
                then(child)
            except Lost as loss:
                if spoken or job["lost"] or importlib.util.find_spec("vllm") is None:
                    raise
                job["lost"] = f"importing it, {loss.what}"
            else:
                return
