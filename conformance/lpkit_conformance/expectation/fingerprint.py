"""Fingerprints of a plugin's results, for comparing processes and times."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch

from lpkit_conformance.hosts import default_host
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Step
from lpkit_conformance.subject.subject import Subject

OPS: tuple[Op, ...] = (
    *(Arrive(f"r{i}", None if i == 2 else i, 5 + i) for i in range(5)),
    Step(4),
    Finish("r1"),
    Step(3),
)


def digest(subject: Subject) -> str:
    """A fingerprint of every processed logit of a short run."""
    seen = default_host(subject, subject.setup.max_num_seqs).run(OPS)
    return digest_of(observation.after for observation in seen)


def digest_of(logits: Iterable[torch.Tensor]) -> str:
    """A fingerprint of processed logits; rounded: another process may pick another order of summation."""
    found = hashlib.sha256()
    for rows in logits:
        found.update(rows.double().mul(1e4).round().nan_to_num(nan=7e7).cpu().numpy().tobytes())
    return found.hexdigest()
