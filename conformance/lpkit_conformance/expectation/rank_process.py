"""The process that stands for the second rank.

It imports torch, and vLLM where it is, as soon as it is started, and then waits for its job: a caller that starts it
early need not wait for it later.
"""

from __future__ import annotations

import os
import random
import sys

import numpy as np

from lpkit_conformance.processes.child import Parent
from lpkit_conformance.processes.peer import Peer


def second_rank() -> Peer:
    """A process that tells what the class that its job names chooses there."""
    return Peer(f"{__name__}:work")


def work(parent: Parent) -> None:
    """In that process: tell the choices of the second rank."""
    import torch

    torch.set_num_threads(1)
    from lpkit_conformance.vllm_api.choose import prepare

    prepare()
    from lpkit.loading import resolve_target

    from lpkit_conformance.expectation.ranks import choices
    from lpkit_conformance.instruments.clocks import clock_ahead
    from lpkit_conformance.settings.cases import Case
    from lpkit_conformance.subject.plugin import Plugin
    from lpkit_conformance.subject.setup import Setup
    from lpkit_conformance.subject.subject import Subject
    from lpkit_conformance.subject.worlds import SECOND_RANK
    from lpkit_conformance.vllm_api.stub import lend_buffers

    parent.tell("ready")
    job = parent.job()
    if job is None:  # the parent has closed the pipe
        return
    sys.path[:] = job["path"]
    device = torch.device(job["device"])
    lend_buffers(device)
    if device.type == "cpu":  # elsewhere this rank would look for a second device
        os.environ.update(RANK="1", LOCAL_RANK="1")
    # Ranks begin with one seed and have drawn different amounts since.
    torch.rand(7), random.random(), np.random.random()
    with clock_ahead():
        plugin = Plugin(job["target"], resolve_target(job["target"]).cls)
        setup = Setup(
            "",
            Case.parse(job["case"]),
            job["vocab_size"],
            job["max_num_seqs"],
            device,
            seed=job["seed"],
            world=SECOND_RANK,
            vocabulary=tuple(job["words"]),
        )
        subject = Subject(plugin, setup, tuple(job["foreign"]))
        parent.tell("answer", answer=choices(subject, rank=1))
