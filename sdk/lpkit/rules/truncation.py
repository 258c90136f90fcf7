"""Five truncations of what is sampled from, by the probabilities and their entropy; a request chooses one.

epsilon: ``p >= t`` and eta: ``p >= min(t, sqrt(t) * exp(-H))`` (Hewitt, Manning and Liang, arXiv 2210.15191); top-a:
``p >= t * p_max ** 2`` (BlinkDL, koboldcpp); typical: the tokens whose surprise is nearest to the entropy H, until they
have the mass t (Meister et al., arXiv 2202.00666); tail-free: the likeliest, up to where the curvature of the sorted
probabilities has summed up to t of its whole (Bricken 2019, as in text-generation-webui).
"""

from __future__ import annotations

import math
from typing import Literal

import torch

import lpkit
from lpkit import kernels


class Truncation(lpkit.LogitsProcessor):
    """Mask the tokens that `rule` leaves out at `threshold`."""

    stage = "sampling"  # typical takes even the likeliest token away, but never from a greedy request
    history = "none"

    class Params(lpkit.Params):
        """A request's settings."""

        rule: Literal["epsilon", "eta", "top_a", "typical", "tail_free"]  # a request without it is unaffected
        threshold: float = lpkit.Field(gt=0.0, le=1.0)

    # A token stays if ln p is at least `log_least + by_top * ln p_max`, or at least `by_entropy - H`.
    log_least = lpkit.column(torch.float32, default=-math.inf)
    by_top = lpkit.column(torch.float32)
    by_entropy = lpkit.column(torch.float32, default=math.inf)
    typical = lpkit.column(torch.float32)
    tail_free = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, rule, threshold = request.slot, request.params.rule, request.params.threshold
        if rule in ("typical", "tail_free"):
            (self.typical if rule == "typical" else self.tail_free)[slot] = threshold
            return bool(threshold < 1.0)
        self.log_least[slot] = math.log(threshold)
        self.by_top[slot] = 2.0 if rule == "top_a" else 0.0
        self.by_entropy[slot] = math.log(threshold) / 2 if rule == "eta" else math.inf
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        columns = (self.log_least, self.by_top, self.by_entropy, self.typical, self.tail_free)
        log_least, by_top, by_entropy, typical, tail_free = (column[rows].unsqueeze(1) for column in columns)
        # How much of the division by the temperature is still to come differs between vLLM's runners.
        temperature = rows.temperature
        if self.typical.used or self.tail_free.used:
            self.mask_by_rank_(logits, temperature, typical, tail_free)
        if self.log_least.used:
            kernels.mask_unlikely_(logits, temperature, log_least, by_top, by_entropy)
        return logits

    def mask_by_rank_(
        self, logits: torch.Tensor, temperature: torch.Tensor, typical: torch.Tensor, tail_free: torch.Tensor
    ) -> None:
        """The rules that sort a row; 0 leaves it unchanged."""
        memory = (torch.float32, torch.float32)
        for block, divisor, mass, curved, scratch, scratch_2 in kernels.blocks(
            logits, temperature, typical, tail_free, scratch=memory
        ):
            seen = block.detach()
            total, entropy = kernels.log_sum_exp_and_entropy(seen, divisor, scratch, scratch_2)
            if self.tail_free.used:
                lowest = torch.where(curved > 0, end_of_curve(seen, divisor, total, curved), -math.inf)
                kernels.mask_below_(block, lowest, scratch)
            if self.typical.used:
                mask_untypical_(block, torch.div(seen, divisor, out=scratch).sub_(total), entropy, mass)


def mask_untypical_(block: torch.Tensor, log_shares: torch.Tensor, entropy: torch.Tensor, mass: torch.Tensor) -> None:
    """Mask all but the tokens next to the entropy that have the mass together; 0 masks nothing."""
    away = (log_shares + entropy).abs()
    ranked, order = kernels.sort(away)
    before = (log_shares.gather(1, order).exp().cumsum(1) < mass).sum(1, keepdim=True)
    farthest = ranked.gather(1, before.clamp(max=block.shape[1] - 1))
    block.masked_fill_(away > torch.where(mass > 0, farthest, math.inf), -math.inf)


def end_of_curve(
    logits: torch.Tensor, temperature: torch.Tensor, total: torch.Tensor, threshold: torch.Tensor
) -> torch.Tensor:
    """The lowest logit that tail-free sampling keeps, `[n, 1]`."""
    ranked = kernels.sorted_values(logits).flip(1)
    curvature = (ranked / temperature - total).exp().diff().diff().abs()
    reached = curvature.cumsum(1) / curvature.sum(1, keepdim=True)
    return ranked.gather(1, (reached <= threshold).sum(1, keepdim=True))
