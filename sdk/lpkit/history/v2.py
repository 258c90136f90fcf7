"""Token histories under V2: read in place from the engine's per-slot tensors, drafts from the step's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lpkit.columns.widths import padded
from lpkit.history.rows import SHORTEST, Seen
from lpkit.kernels import fused

if TYPE_CHECKING:
    from lpkit.history.rows import Rows
    from lpkit.v2 import LogitsContext, LogitsProcRequestState


class V2History:
    """The histories of one ``apply`` call.

    Args:
        states: the engine's buffers; ``.gpu`` of the prompt lengths is read here and now, because the engine
            rebinds it at every flush.
        ctx: the call's rows.
        width: host upper bound of the longest visible history.
        keep_tokens: False when only lengths are declared.
    """

    def __init__(self, states: LogitsProcRequestState, ctx: LogitsContext, width: int, keep_tokens: bool) -> None:
        self._states = states
        self._ctx = ctx
        self._width = min(padded(width, SHORTEST), states.all_token_ids.gpu.shape[1])
        self._keep = keep_tokens
        self._drafts = ctx.pos.shape[0] != ctx.idx_mapping_np.shape[0]

    def seen(self, rows: Rows) -> Seen | None:
        held = self._states.all_token_ids.gpu
        few = fused.few_for(held)
        if few is None or self._drafts:
            return None
        width = self._width if self._keep else 0
        prompts, positions = self._states.prompt_len.gpu, self._ctx.pos
        return Seen(*few.engine_history(held, rows.slots, rows.index, prompts, positions, width))

    def lengths(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        prompt = self._states.prompt_len.gpu[rows.slots].to(torch.int64)
        return prompt, self._ctx.pos[rows.index].to(torch.int64) + 1

    def tokens(self, rows: Rows) -> torch.Tensor:
        visible = rows.total_len.unsqueeze(1)
        held: torch.Tensor = (
            self._states.all_token_ids.gpu[:, : self._width].index_select(0, rows.slots).to(torch.int64)
        )
        position = torch.arange(self._width, device=held.device)
        if self._drafts:
            # A draft at position q is the input of the row that many rows further up.
            committed = self._states.total_len.gpu[rows.slots].to(torch.int64).unsqueeze(1)
            source = rows.index.unsqueeze(1) - (visible - 1 - position)
            drafted = self._ctx.input_ids[source.clamp(0, self._ctx.input_ids.shape[0] - 1)].to(torch.int64)
            held = torch.where(position < committed, held, drafted)
        return held.masked_fill_(position >= visible, -1)
