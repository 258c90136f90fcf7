"""The child process in which the processors run; :mod:`.run` is its parent."""

from __future__ import annotations

import sys

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
    from lpkit_conformance.errors import UserError
    from lpkit_conformance.show.asked import Asked
    from lpkit_conformance.subject.calls import PluginError

    try:
        asked = Asked(job, judged_with.startswith(STANDIN))
        parent.tell("begun", **asked.facts())
        lockstep = asked.lockstep()
        parent.tell("plain", plain=[asked.model.text(token) for token in lockstep.plain])
        for step in lockstep.steps():
            parent.tell("step", step=encode(step))
            parent.tell("notes", notes=lockstep.notes())
    except UserError as error:
        parent.tell("problem", problem=str(error))
    except PluginError as error:
        parent.tell("problem", problem=f"{error}{f' ({error.location})' if error.location else ''}")
