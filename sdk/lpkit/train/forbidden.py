"""Tokens of a response that the rollout cannot have sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_SHOWN = 8


class ForbiddenToken(NamedTuple):
    """A token whose processed logit is -inf.

    Attributes:
        sequence: number of the response in the batch.
        position: of the token in the response, from 0.
        token: its id.
    """

    sequence: int
    position: int
    token: int


class ForbiddenTokensError(ValueError):
    """Error for responses with tokens that their parameters rule out: their log-probabilities and ratios are undefined.

    Attributes:
        tokens: all forbidden tokens, in order.
    """

    def __init__(self, tokens: Sequence[ForbiddenToken]) -> None:
        self.tokens = tuple(tokens)
        shown = [f"token {t.token} at position {t.position} of sequence {t.sequence}" for t in self.tokens[:_SHOWN]]
        more = [f"{len(self.tokens) - _SHOWN} more"] if len(self.tokens) > _SHOWN else []
        super().__init__(
            f"the rollout cannot have sampled {'; '.join([*shown, *more])}: their processed logits are -inf. Give the "
            "parameters and the tokens of the rollout, or forbidden='mask' to get a mask of such tokens."
        )

    def __reduce__(self) -> tuple[type[ForbiddenTokensError], tuple[tuple[ForbiddenToken, ...]]]:
        return type(self), (self.tokens,)  # trainers raise it in one process and show it in another
