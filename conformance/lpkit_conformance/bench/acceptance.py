"""What a processor costs in drafts: how many of a drafter that does not know it are accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from lpkit.sampling_params import GREEDY_EPSILON

from lpkit_conformance.bench.results import Acceptance
from lpkit_conformance.hosts import parts_of
from lpkit_conformance.hosts.calls import Observation
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import ActiveRequest
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.traces import load, names
from lpkit_conformance.vllm_api.runners import V2

DRAFTS = (1, 3, 5)
"""Drafts per step, of which the tokens per step are told."""

UNCHANGED = 1 - 1e-6
LOW = 0.1

Overlaps = dict[tuple[str, int], float]
"""By request and the number of tokens that the row sees."""


def acceptance(cls: Any, case: Case, device: torch.device, seed: int = 0) -> Acceptance:
    """Estimate it over the traces that real engines recorded on V2, with this case for every request.

    The drafter is the model without the processor, so that without one every draft is accepted. A draft is then
    accepted with the probability that both distributions have in common, ``sum(min(draft, target))``.

    Args:
        cls: the class.
        case: of all requests.
        device: of the logits.
        seed: of the model.

    Raises:
        PluginError: if the plugin raises.
    """
    found: list[Overlaps] = []
    for name in names(V2):
        subject = PluginUnderTest(name, cls, V2, case, device=device, seed=seed)
        subject.cases = [case]
        host = parts_of(V2).recorded(subject, load(name), "all")
        overlaps: Overlaps = {}
        for seen in host.run():
            overlaps.update(_overlaps(seen, host.requests))
        found.append(overlaps)
    values = torch.tensor([value for overlaps in found for value in overlaps.values()], dtype=torch.float64)
    tokens = {str(drafts): tokens_per_step(found, drafts) for drafts in DRAFTS}
    changed = float((values < UNCHANGED).double().mean())
    return Acceptance(case.text, len(values), float(values.mean()), float(values.quantile(LOW)), changed, tokens)


def overlap(before: torch.Tensor, after: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """``[n]`` probability that a draft from ``before`` is accepted where tokens come from ``after``.

    Args:
        before: ``[n, vocab]`` the model's logits.
        after: ``[n, vocab]`` those that the processor returned.
        temperature: ``[n]``; at 0 the best token is drafted, and is accepted if it is the target's best.
    """
    greedy = temperature < GREEDY_EPSILON
    scale = torch.where(greedy, 1.0, temperature).unsqueeze(1)
    common = torch.minimum((before / scale).softmax(-1), (after / scale).softmax(-1)).sum(-1)
    return torch.where(greedy, (before.argmax(-1) == after.argmax(-1)).to(common), common.clamp(max=1.0))


def tokens_per_step(runs: list[Overlaps], drafts: int) -> float:
    """Tokens that a step with this many drafts gives: accepted ones and one more, on average over beginnings."""
    total, count = 0.0, 0
    for overlaps in runs:
        for request, length in overlaps:
            likely = 1.0
            chances = [overlaps.get((request, length + n)) for n in range(drafts)]
            if None in chances:
                continue  # the text ends before
            total += 1.0
            for chance in chances:
                likely *= chance or 0.0
                total += likely
            count += 1
    return total / count if count else float("nan")


def _overlaps(seen: Observation, requests: Mapping[str, ActiveRequest]) -> Overlaps:
    rows = [n for n, row in enumerate(seen.rows) if not row.discarded]
    if not rows:
        return {}
    temperature = torch.tensor([requests[seen.rows[n].request].temperature for n in rows], device=seen.before.device)
    values = overlap(seen.before[rows], seen.after[rows], temperature).tolist()
    return {(seen.rows[n].request, seen.rows[n].position): value for n, value in zip(rows, values, strict=True)}
