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
) -> None:
    """Run a job to its end. What it says first says that :func:`.choose.prepare` has made ``import vllm`` work.

    Args:
        entry: the function, as ``module:function``.
        job: what it gets; ``lost`` is set to how a process ended that tried to import vLLM, which it is to tell
            ``prepare``.
        take: is given each event.
        seconds: how long it may take from one event to the next.
        env: variables to set there.
        ahead: the first process, if it has been started already.

    Raises:
        Lost: it did not come to its end.
        ModuleNotFoundError: there is no torch, which this process does not need and the child does.
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
            except Lost as loss:
                if spoken or job["lost"] or importlib.util.find_spec("vllm") is None:
                    raise
                job["lost"] = f"importing it, {loss.what}"
            else:
                return
