"""Characters: a reply without some scripts or classes of characters, or made of nothing else.

The tokens are found in the model's vocabulary (:mod:`lpkit.vocabulary.characters`). What a token is depends on all of
its characters: `ban` counts tokens that hold one of the classes, `allow` tokens that hold no other.
"""

from __future__ import annotations

import numpy as np
import torch

import lpkit
from lpkit.portable.words import HoldingOf, MadeOf

LIMIT = 32  # classes per request


class Characters(lpkit.LogitsProcessor):
    """Mask tokens with characters of the classes `ban`, or take `penalty` from their logits; or keep only `allow`."""

    stage = "logits"  # greedy requests too
    history = "none"

    class Params(lpkit.Params):
        """A request's settings."""

        ban: HoldingOf = lpkit.Field((), max_length=LIMIT)
        allow: MadeOf = lpkit.Field((), max_length=LIMIT)
        penalty: float | None = lpkit.Field(None, ge=-1000.0, le=1000.0)

        def check_together(self) -> None:
            ban, allow, penalty = (self.lpkit_prefix + name for name in ("ban", "allow", "penalty"))
            if bool(len(self.ban)) == bool(len(self.allow)):
                raise ValueError(f"{ban} or {allow} is needed, and not both")
            if self.penalty is not None and not len(self.ban):
                raise ValueError(f"{penalty}: is for {ban} only")

    kept = lpkit.token_set()
    penalized = lpkit.token_set()
    penalty = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        slot, wanted = request.slot, request.params
        if wanted.penalty is not None:
            self.penalized[slot] = wanted.ban
            self.penalty[slot] = wanted.penalty
        elif len(wanted.ban):
            self.kept[slot] = np.delete(np.arange(self.vocab_size), wanted.ban)
        else:
            self.kept[slot] = wanted.allow
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if self.penalized.used:
            logits -= self.penalized[rows] * self.penalty[rows].unsqueeze(1)  # elsewhere 0.0, which changes no bit
        return self.kept.keep_only_(logits, rows)
