"""The child process in which the processors run; :mod:`.run` is its parent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from lpkit_conformance.codec import encode
from lpkit_conformance.processes.child import Parent
from lpkit_conformance.vllm_api.choose import STANDIN, prepare


def work(parent: Parent) -> None:
    """Load the processors and the model, run the request, and send each step as it is known."""
    job = parent.job()
    import torch

    torch.set_num_threads(1)
    judged_with = prepare(job["lost"])
    sys.path[:0] = job["path"]
    parent.tell("ready", judged_with=judged_with)
    for fields in told(job, judged_with):
        parent.tell("seen", **fields)


def told(job: dict[str, Any], judged_with: str) -> Iterator[dict[str, Any]]:
    """Run a job of :mod:`.run`; yield fields of :class:`.results.Show`, each ``step`` with them."""
    from lpkit_conformance.errors import UserError
    from lpkit_conformance.show.asked import Asked
    from lpkit_conformance.subject.calls import PluginError

    try:
        asked = Asked(job, judged_with.startswith(STANDIN))
        yield asked.facts()
        lockstep = asked.lockstep()
        yield {"plain": [asked.model.text(token) for token in lockstep.plain]}
        for step in lockstep.steps():
            yield {"step": encode(step), "notes": lockstep.notes()}
    except (UserError, PluginError) as error:
        yield problem(error)


def problem(error: Exception) -> dict[str, Any]:
    """Return an error of the user's or of a processor as fields."""
    location = getattr(error, "location", "")
    return {"problem": f"{error}{f' ({location})' if location else ''}"}
