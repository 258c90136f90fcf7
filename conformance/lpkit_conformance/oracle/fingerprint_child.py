"""The second process that a fingerprint is compared with.

It imports torch, and vLLM where it is, as soon as it is started, and then waits for its job on standard input, so that
who starts it early need not wait for it later.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from lpkit_conformance.processes.peer import SecondProcess


def second_process() -> SecondProcess:
    """A process that gives the fingerprint of the class that its job names."""
    return SecondProcess(__name__)


def start(_: Sequence[str]) -> None:
    """Entry of the process: print the fingerprint of the class that the JSON job names."""
    import torch

    torch.set_num_threads(1)
    from lpkit_conformance.vllm_api.choose import prepare

    prepare()
    from lpkit.loading import interfaces_of, resolve_target

    from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
    from lpkit_conformance.oracle.fingerprint import fingerprint
    from lpkit_conformance.settings.cases import Case
    from lpkit_conformance.vllm_api.stub import lend_buffers

    line = sys.stdin.readline()
    if not line:  # nobody wants to know
        return
    job = json.loads(line)
    sys.path[:] = job["path"]
    device = torch.device(job["device"])
    lend_buffers(device)
    cls = resolve_target(job["target"]).cls
    subject = PluginUnderTest(
        job["target"],
        cls,
        "",
        Case.parse(job["case"]),
        interfaces_of(cls),
        job["vocab_size"],
        job["max_num_seqs"],
        device,
        seed=job["seed"],
    )
    print(fingerprint(subject), flush=True)
    os._exit(0)  # all is said, and taking torch down takes half a second
