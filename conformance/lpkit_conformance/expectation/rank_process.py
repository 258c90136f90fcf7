"""The process that stands for the second rank.

It imports torch, and vLLM where it is, as soon as it is started, and then waits for its job: a caller that starts it
early need not wait for it later.
"""

from __future__ import annotations

import os
import random
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lpkit_conformance.processes.child import Parent
from lpkit_conformance.processes.supervise import ONE_THREAD, Child, Lost, import_path

if TYPE_CHECKING:
    from lpkit_conformance.subject.subject import Subject

LIMIT_SECONDS = 20.0
"""Between two signs of life; less than the check has that waits for it."""

HASH_SEED = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
"""The second rank's ``PYTHONHASHSEED``, different from this process's."""


def second_rank() -> Child:
    """Start the process."""
    return Child(f"{__name__}:work", {**ONE_THREAD, "PYTHONHASHSEED": HASH_SEED})


def ask(second: Child, target: str, subject: Subject, follow: bool = False) -> None:
    """Send a class's target and its setup; the process imports everything that this process can.

    ``follow``: the answer is the trail of its lines.
    """
    setup = subject.setup
    job = {
        "target": target,
        "case": setup.case.to_json(),
        "others": [case.to_json() for case in setup.others],
        "vocab_size": setup.vocab_size,
        "max_num_seqs": setup.max_num_seqs,
        "seed": setup.seed,
        "words": setup.words,
        "model": dict(setup.model),
        "tokenizer": setup.tokenizer,
        "foreign": subject.foreign,
        "device": str(setup.device),
        "follow": follow,
        "path": import_path(),
    }
    second.send(job, LIMIT_SECONDS)


def answer(second: Child) -> Any:
    """Return the second rank's choices, or its trail as JSON; None if it failed.

    Raises:
        TimeoutError: a call of the plugin did not return there in time.
    """
    try:
        return second.answer(LIMIT_SECONDS)
    except Lost as loss:
        if loss.kind == "hang":
            raise TimeoutError(f"in a second process, {loss.what}") from None
        return None


def work(parent: Parent) -> None:
    """In that process: send the choices of the second rank."""
    import torch

    torch.set_num_threads(1)
    from lpkit_conformance.vllm_api.choose import prepare

    prepare()
    from lpkit.loading import resolve_target

    from lpkit_conformance.expectation.ranks import choices
    from lpkit_conformance.instruments.clocks import clock_ahead
    from lpkit_conformance.instruments.trails import trail
    from lpkit_conformance.settings.cases import Case
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
        subject = Subject.of(
            job["target"],
            resolve_target(job["target"]),
            "",
            Case.parse(job["case"]),
            vocab_size=job["vocab_size"],
            max_num_seqs=job["max_num_seqs"],
            device=device,
            seed=job["seed"],
            world=SECOND_RANK,
            vocabulary=tuple(job["words"]),
            model=job["model"],
            tokenizer=job["tokenizer"],
            others=tuple(map(Case.parse, job["others"])),
        )
        with trail() if job["follow"] else nullcontext() as seen:
            chosen = choices(replace(subject, foreign=tuple(job["foreign"])), rank=1)
        parent.answer(chosen if seen is None else seen)
