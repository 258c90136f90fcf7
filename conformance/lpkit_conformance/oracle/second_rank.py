"""The second process that a fingerprint is compared with.

It imports torch, and vLLM where it is, as soon as it is started, and then waits for its job: a caller that starts it
early need not wait for it later.
"""

from __future__ import annotations

import sys

from lpkit_conformance.processes.child import Parent
from lpkit_conformance.processes.peer import Peer


def second_rank() -> Peer:
    """A process that gives the fingerprint of the class that its job names."""
    return Peer(f"{__name__}:work")


def work(parent: Parent) -> None:
    """In that process: tell the fingerprint."""
    import torch

    torch.set_num_threads(1)
    from lpkit_conformance.vllm_api.choose import prepare

    prepare()
    from lpkit.loading import resolve_target

    from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
    from lpkit_conformance.oracle.fingerprint import fingerprint
    from lpkit_conformance.settings.cases import Case
    from lpkit_conformance.vllm_api.stub import lend_buffers

    parent.tell("ready")
    job = parent.job()
    if job is None:  # the parent has closed the pipe
        return
    sys.path[:] = job["path"]
    device = torch.device(job["device"])
    lend_buffers(device)
    cls = resolve_target(job["target"]).cls
    subject = PluginUnderTest(
        job["target"],
        cls,
        "",
        Case.parse(job["case"]),
        job["vocab_size"],
        job["max_num_seqs"],
        device,
        seed=job["seed"],
        words=tuple(job["words"]),
    )
    parent.tell("answer", answer=fingerprint(subject))
