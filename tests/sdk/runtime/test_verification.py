"""Verification of drafts: the target's distribution, whatever is proposed."""

from __future__ import annotations

import torch
from lpkit.runtime import verify_drafts

REQUESTS, DRAFTS, VOCAB = 20_000, 2, 6
ROWS = DRAFTS + 1


def verify(
    target: torch.Tensor, proposed: torch.Tensor, ids: torch.Tensor, accept_rate: float | None = None, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Accepted drafts and sampled tokens; ``target`` and ``proposed``, ``[ROWS, VOCAB]``, are each request's."""
    random = torch.Generator().manual_seed(seed)
    count = len(ids)
    padded = torch.cat([ids, torch.zeros(count, 1, dtype=torch.int64)], 1).flatten()
    return verify_drafts(
        target.log().repeat(count, 1),
        padded,
        proposed.repeat(count, 1),
        torch.arange(count) * ROWS,
        torch.full((count,), DRAFTS),
        uniform=torch.rand(count * ROWS, generator=random),
        choice=torch.rand(count, generator=random),
        accept_rate=accept_rate,
    )


def distributions(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A target, a proposal, and drafts drawn from it."""
    random = torch.Generator().manual_seed(seed)
    target, proposed = torch.randn(2, ROWS, VOCAB, generator=random).mul(1.5).softmax(-1)
    target[0, 3] = 0.0
    drawn = torch.multinomial(proposed[:DRAFTS], REQUESTS, True, generator=random).T.contiguous()
    return target / target.sum(-1, keepdim=True), proposed, drawn


def chi_square(tokens: torch.Tensor, expected: torch.Tensor) -> float:
    counts, wanted = torch.bincount(tokens, minlength=VOCAB), expected * len(tokens)
    return float(((counts - wanted) ** 2 / wanted.clamp(min=1e-9)).sum())


LIMIT = 40.0
"""Five degrees of freedom: by chance less than once in a million."""


def test_each_token_has_the_targets_distribution() -> None:
    target, proposed, ids = distributions(1)
    accepted, sampled = verify(target, proposed, ids)
    for place in range(ROWS):
        drafted = ids[accepted > place, place] if place < DRAFTS else ids[:0, 0]
        tokens = torch.cat([drafted, sampled[accepted == place]])
        assert len(tokens) > 1000
        assert chi_square(tokens, target[place]) < LIMIT


def test_a_drafter_without_probabilities_changes_nothing_either() -> None:
    target, _, ids = distributions(2)
    ids[:] = torch.tensor([4, 1])
    accepted, sampled = verify(target, torch.nn.functional.one_hot(torch.tensor([4, 1, 0]), VOCAB).float(), ids)
    tokens = torch.where(accepted > 0, 4, sampled)
    assert chi_square(tokens, target[0]) < LIMIT


def test_accepting_at_a_fixed_rate_changes_the_distribution() -> None:
    target, proposed, ids = distributions(1)
    accepted, sampled = verify(target, proposed, ids, accept_rate=0.7)
    tokens = torch.where(accepted > 0, ids[:, 0], sampled)
    assert chi_square(tokens, target[0]) > 100 * LIMIT
    assert (tokens == 3).any(), "what the target forbids comes out"


def test_what_is_proposed_with_the_targets_own_probabilities_is_accepted() -> None:
    target, _, _ = distributions(3)
    ids = torch.multinomial(target[:DRAFTS], REQUESTS, True, generator=torch.Generator().manual_seed(4)).T.contiguous()
    assert (verify(target, target, ids)[0] == DRAFTS).all()


def test_a_placeholder_ends_the_verification_and_the_target_is_sampled() -> None:
    target, proposed, ids = distributions(5)
    ids[:, 1] = -1
    accepted, sampled = verify(target, proposed, ids)
    assert int(accepted.max()) == 1
    assert chi_square(sampled[accepted == 1], target[1]) < LIMIT


def test_requests_may_have_different_numbers_of_drafts() -> None:
    logits = torch.full((4, VOCAB), -torch.inf)
    logits[torch.arange(4), torch.tensor([5, 2, 3, 1])] = 0.0
    drafts = torch.tensor([0, 2, 3, 0])  # one request without drafts, then one whose two drafts are right
    proposed = torch.full((4, VOCAB), 1 / VOCAB)
    uniform = torch.full((4,), 0.5)
    found = verify_drafts(
        logits,
        drafts,
        proposed,
        torch.tensor([0, 1]),
        torch.tensor([0, 2]),
        uniform=uniform,
        choice=torch.tensor([0.1, 0.9]),
    )
    assert (found.accepted.tolist(), found.token_ids.tolist()) == ([0, 2], [5, 1])
