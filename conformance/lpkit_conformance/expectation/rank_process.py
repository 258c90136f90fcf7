"""The process that stands for the second rank."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from lpkit_conformance.instruments.clocks import clock_ahead
from lpkit_conformance.processes.child import Parent
from lpkit_conformance.processes.codec import decode, encode
from lpkit_conformance.processes.supervise import HASH_SEED, ONE_THREAD, Child, Lost, import_path

if TYPE_CHECKING:
    from lpkit_conformance.subject.subject import Subject

LIMIT_SECONDS = 20.0
"""Between two signs of life; less than the check has that waits for it."""


def second_rank(target: str, subject: Subject, follow: bool = False) -> Child:
    """Start the process with a class's target and its setup; it imports everything that this process can.

    ``follow``: the answer is the trail of its lines.
    """
    setup = subject.setup
    job = {
        "target": target,
        "cases": encode((setup.case, *setup.others)),
        "words": setup.words,
        "setup": {name: getattr(setup, name) for name in ("vocab_size", "max_num_seqs", "seed", "tokenizer", "model")},
        "foreign": subject.foreign,
        "without": subject.without,
        "longest": subject.longest,
        "device": str(setup.device),
        "follow": follow,
        "path": import_path(),
    }
    second = Child(f"{__name__}:work", {**ONE_THREAD, "PYTHONHASHSEED": HASH_SEED})
    second.send(job, LIMIT_SECONDS)
    return second


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


@contextmanager
def as_second_rank(device: str) -> Iterator[None]:
    """Surroundings of the second rank: another rank in the environment, other random numbers, and a clock ahead."""
    import numpy as np
    import torch

    # Elsewhere this rank would look for a second device.
    ranked = {"RANK": "1", "LOCAL_RANK": "1"} if device == "cpu" else {}
    # Ranks begin with one seed and have drawn different amounts since.
    torch.rand(7), random.random(), np.random.random()
    with mock.patch.dict(os.environ, ranked), clock_ahead():
        yield


def work(parent: Parent) -> None:
    """Send the choices of the second rank; runs in that rank's process."""
    import torch

    torch.set_num_threads(1)
    from lpkit_conformance.vllm_api.choose import prepare

    prepare()
    from lpkit.loading import resolve_target

    from lpkit_conformance.expectation.ranks import choices
    from lpkit_conformance.instruments.trails import trail
    from lpkit_conformance.settings.cases import Case
    from lpkit_conformance.subject.subject import Subject
    from lpkit_conformance.subject.worlds import SECOND_RANK
    from lpkit_conformance.vllm_api.stub import lend_buffers

    parent.tell("ready")
    job = parent.job()
    sys.path[:] = job["path"]
    device = torch.device(job["device"])
    lend_buffers(device)
    case, *others = decode(tuple[Case, ...], job["cases"])
    with as_second_rank(job["device"]):
        subject = Subject.of(
            job["target"],
            resolve_target(job["target"]),
            "",
            case,
            device=device,
            world=SECOND_RANK,
            vocabulary=tuple(job["words"]),
            others=tuple(others),
            **job["setup"],
        )
        with trail() if job["follow"] else nullcontext() as seen:
            subject = replace(
                subject, foreign=tuple(job["foreign"]), without=tuple(job["without"]), longest=job["longest"]
            )
            chosen = choices(subject, rank=1)
        parent.answer(chosen if seen is None else seen)
