"""Choose: the reply is one of some texts, token by token (`choice` of vLLM's structured outputs, for tokens).

The texts are the paths of a trie; the tokens since the step begins to act say where in it a request stands.
"""

from __future__ import annotations

from typing import Annotated

import torch

import lpkit
from lpkit import kernels

LIMIT = 128  # texts per request


class Choose(lpkit.LogitsProcessor):
    """Force one of `texts`, which the model chooses token by token, then `end`."""

    stage = "logits"  # greedy requests too
    history = "tokens"

    class Params(lpkit.Params):
        """A request's settings."""

        texts: Annotated[lpkit.TokenSequencesOf, lpkit.WordForms(spaces=True)] = lpkit.Field(
            min_length=1, max_length=LIMIT
        )
        end: Annotated[lpkit.TokenIdsOf, lpkit.WordForms(special=True)] = lpkit.Field((), max_length=16)

    texts = lpkit.phrases(limit=3 * LIMIT, longest=32)
    end = lpkit.ragged(torch.int64, limit=16)

    def since(self, rows: lpkit.Rows) -> torch.Tensor:
        """Return where the text begins, ``[n]``."""
        return rows.prompt_len

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        token, complete = self.texts.continuing(rows, self.since(rows))
        end = self.end[rows]
        free = complete & (end[:, 0] < 0)  # without an end, anything may follow a complete text
        ids = torch.cat((token, end.where(complete.unsqueeze(1), -1)), 1)
        first = ids.amax(1, keepdim=True)  # -1: the row has left the texts
        return kernels.keep_ids_(logits, torch.cat((first, ids), 1), ~free.unsqueeze(1))
