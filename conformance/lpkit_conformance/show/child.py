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
    for event, fields in told(job, judged_with):
        parent.tell(event, **fields)


def told(job: dict[str, Any], judged_with: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run a job of :mod:`.run`; yield each event and its fields."""
    from lpkit_conformance.errors import UserError
    from lpkit_conformance.show.asked import Asked
    from lpkit_conformance.subject.calls import PluginError

    try:
        asked = Asked(job, judged_with.startswith(STANDIN))
        yield "begun", asked.facts()
        lockstep = asked.lockstep()
        yield "plain", {"plain": [asked.model.text(token) for token in lockstep.plain]}
        for step in lockstep.steps():
            yield "step", {"step": encode(step)}
            yield "notes", {"notes": lockstep.notes()}
    except UserError as error:
        yield "problem", {"problem": str(error)}
    except PluginError as error:
        yield "problem", {"problem": f"{error}{f' ({error.location})' if error.location else ''}"}
