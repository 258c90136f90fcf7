"""What every check says about every planted defect and every correct processor of the zoo, host by host.

The zoo's own tests hold that the named check catches its defect; this holds all the other verdicts as well.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
import zoo
from golden import hold


def verdicts(identity: str) -> dict[str, str]:
    """Labels of the checks by status, without those that passed."""
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    specimen = next(item for item in (*zoo.CORRECT, *zoo.DEFECTS, *zoo.MISSED) if item.id == identity)
    found: dict[str, list[str]] = {}
    for result in zoo.run_all(specimen):
        found.setdefault(result.status, []).append(result.label)
    return {status: " ".join(sorted(labels)) for status, labels in sorted(found.items()) if status != "passed"}


@pytest.mark.deep
@pytest.mark.parametrize("style", ["adapter", "packaging", "portable", "v1", "v2"])
def test_every_verdict_is_the_same(style: str) -> None:
    everything = sorted(item.id for item in (*zoo.CORRECT, *zoo.DEFECTS, *zoo.MISSED))
    ids = [identity for identity in everything if identity.startswith((f"{style}-", f"{style}+"))]
    # Processes of their own: a defect may spoil what is shared.
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), get_context("forkserver")) as pool:
        found = dict(zip(ids, pool.map(verdicts, ids), strict=True))
    hold(f"verdicts-{style}", found)
