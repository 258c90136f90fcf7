"""A forced sequence; the rule is `lpkit.rules.forced_sequence`.

The plugin also speaks NVIDIA Dynamo, whose `ForcedTokenSequenceSpec` reaches the engine as `dynamo_logits` (see
`lpkit.dynamo`).
"""

from __future__ import annotations

from typing import Literal

import lpkit
from lpkit.rules.forced_sequence import LIMIT
from lpkit.rules.forced_sequence import ForcedSequence as Rule


class DynamoEntry(lpkit.Params):
    """A serialized `ForcedTokenSequenceSpec`."""

    kind: Literal["forced_sequence"]
    token_ids: tuple[lpkit.TokenId, ...] = lpkit.Field(max_length=LIMIT)
    eos_token_id: lpkit.TokenId


class ForcedSequence(Rule):
    """Force the tokens of `forced_sequence`, then `forced_sequence_end`."""

    # The prefix is a whole key, so that all of them read well.
    class Params(Rule.Params, prefix="forced_sequence"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""

        ids: tuple[lpkit.TokenId, ...] = lpkit.Field((), alias="forced_sequence", max_length=LIMIT)
        end: lpkit.TokenId | None = lpkit.Field(None, alias="forced_sequence_end")
        dynamo: tuple[DynamoEntry, ...] = lpkit.Field((), alias="dynamo_logits", max_length=1)

        def check_together(self) -> None:
            if self.ids and self.dynamo:
                raise ValueError("forced_sequence and dynamo_logits are both given")
            if self.end is not None and not self.ids:
                raise ValueError("forced_sequence_end is given without forced_sequence")

    def admit(self, request: lpkit.Request[Params]) -> bool:
        for entry in request.params.dynamo:
            if max((*entry.token_ids, entry.eos_token_id)) >= self.vocab_size:
                raise ValueError(f"dynamo_logits: a token id is outside the vocabulary of {self.vocab_size}")
            return self.force(request.slot, entry.token_ids, entry.eos_token_id)
        return super().admit(request)
