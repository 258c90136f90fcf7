"""Forced sequence: the n-th output token is the n-th of a list, then an end token if there is one.

A function of the output's length alone, so a preempted request resumes in mid-sequence. It also speaks NVIDIA Dynamo,
whose `ForcedTokenSequenceSpec` reaches the engine as `dynamo_logits` (see `lpkit.dynamo`).
"""

from __future__ import annotations

from typing import Literal

import lpkit
import torch
from lpkit import kernels

LIMIT = 1024  # tokens per request


class DynamoEntry(lpkit.Params):
    """A serialized `ForcedTokenSequenceSpec`."""

    kind: Literal["forced_sequence"]
    token_ids: tuple[lpkit.TokenId, ...] = lpkit.Field(max_length=LIMIT)
    eos_token_id: lpkit.TokenId


class ForcedSequence(lpkit.LogitsProcessor):
    """Force the tokens of `forced_sequence`, then `forced_sequence_end`."""

    stage = "logits"  # greedy requests too
    history = "length"

    # The prefix is a whole key, so that all of them read well.
    class Params(lpkit.Params, prefix="forced_sequence"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        ids: tuple[lpkit.TokenId, ...] = lpkit.Field((), alias="forced_sequence", max_length=LIMIT)
        end: lpkit.TokenId | None = lpkit.Field(None, alias="forced_sequence_end")
        dynamo: tuple[DynamoEntry, ...] = lpkit.Field((), alias="dynamo_logits", max_length=1)

        def check_together(self) -> None:
            if self.ids and self.dynamo:
                raise ValueError("forced_sequence and dynamo_logits are both given")
            if self.end is not None and not self.ids:
                raise ValueError("forced_sequence_end is given without forced_sequence")

    due = lpkit.ragged(torch.int64, limit=LIMIT + 1)  # the tokens, then the end token or -1
    last = lpkit.column(torch.int64)  # the place of the end token

    def admit(self, request: lpkit.Request[Params]) -> bool:
        ids, end = request.params.ids, request.params.end
        for entry in request.params.dynamo:
            ids, end = entry.token_ids, entry.eos_token_id
            if max((*ids, end)) >= self.vocab_size:
                raise ValueError(f"dynamo_logits: a token id is outside the vocabulary of {self.vocab_size}")
        self.due[request.slot] = [*ids, -1 if end is None else end]
        self.last[request.slot] = len(ids)
        return bool(ids) or end is not None

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        due = self.due.at(rows, rows.output_len.minimum(self.last[rows]).unsqueeze(1))  # [n, 1]
        return kernels.keep_ids_(logits, due)
