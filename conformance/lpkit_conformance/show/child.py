"""The child process in which the processors run; :mod:`.run` is its parent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from lpkit_conformance.processes.child import Parent
from lpkit_conformance.processes.codec import encode
from lpkit_conformance.vllm_api.choose import STANDIN, prepare


def work(parent: Parent) -> None:
    """Load the processors and the model, run the request, and send each step as it is known."""
    job = parent.job()
    import torch

    torch.set_num_threads(1)
    judged_with = prepare(job["lost"])
    sys.path[:0] = job["path"]
    parent.tell("ready")
    for fields in played(job, judged_with):
        parent.tell("seen", **fields)


def played(job: dict[str, Any], judged_with: str, runs: Callable[[Any], Any] | None = None) -> Iterator[dict[str, Any]]:
    """Run a job of :mod:`.run`; yield fields of :class:`.results.Show`, and each ``step``.

    Args:
        judged_with: the source of vLLM's interfaces.
        runs: the class that runs the request, with the methods of :class:`.playing.Lockstep`, the default.
    """
    from lpkit_conformance.errors import UserError
    from lpkit_conformance.show.asked import asked
    from lpkit_conformance.show.playing import Lockstep
    from lpkit_conformance.subject.calls import PluginError

    try:
        shown = asked(job, judged_with.startswith(STANDIN))
        model = shown.model
        yield {
            "judged_with": judged_with,
            "model": model.name,
            "toy": model.toy,
            "host": shown.host,
            "case": shown.case.text,
            "prompt": [*map(model.text, shown.prompt)],
            "names": [processor.name for processor in shown.processors],
        }
        run = (runs or Lockstep)(shown)
        yield {"plain": [*map(model.text, run.plain)]}
        for step in run.steps():
            yield {"step": encode(step), "notes": run.notes()}
    except (UserError, PluginError) as error:
        location = getattr(error, "location", "")
        yield {"problem": f"{error}{f' ({location})' if location else ''}"}
