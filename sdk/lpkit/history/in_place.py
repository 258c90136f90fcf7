"""Token histories under V2: read in place from the engine's per-slot tensors, drafts from the step's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lpkit.columns.widths import padded
from lpkit.history.base import SHORTEST, History, HistoryParts
from lpkit.kernels import fused

if TYPE_CHECKING:
    from lpkit.v2 import LogitsContext, LogitsProcRequestState


class V2History(History):
    """The histories of some rows of one ``apply`` call.

    Args:
        states: the engine's buffers; ``.gpu`` of the prompt lengths is read in this call, because the engine
            rebinds it at every flush.
        ctx: the call.
        index: int64 ``[n]``, the rows.
        slots: int64 ``[n]``, slots of their requests.
        width: host upper bound of the longest visible history.
        keep_tokens: False when only lengths are read.
    """

    def __init__(
        self,
        states: LogitsProcRequestState,
        ctx: LogitsContext,
        index: torch.Tensor,
        slots: torch.Tensor,
        width: int,
        keep_tokens: bool,
    ) -> None:
        self._states = states
        self._index = index
        self._slots = slots
        self._positions = ctx.pos
        self._inputs = ctx.input_ids
        self._drafts = ctx.pos.shape[0] != ctx.idx_mapping_np.shape[0]
        self._width = min(padded(width, SHORTEST), states.all_token_ids.gpu.shape[1]) if keep_tokens else 0

    def _find_all(self) -> HistoryParts | None:
        held = self._states.all_token_ids.gpu
        few = fused.few_for(held)
        if few is None or self._drafts:
            return None
        prompts = self._states.prompt_len.gpu
        return HistoryParts(*few.engine_history(held, self._slots, self._index, prompts, self._positions, self._width))

    def _find_lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        prompt = self._states.prompt_len.gpu[self._slots].to(torch.int64)
        return prompt, self._positions[self._index].to(torch.int64) + 1

    def _find_tokens(self) -> torch.Tensor:
        visible = self.lengths[1].unsqueeze(1)
        held = self._states.all_token_ids.gpu[:, : self._width].index_select(0, self._slots).to(torch.int64)
        position = torch.arange(self._width, device=held.device)
        if self._drafts:
            # The draft at position q is the input of the row that lies (visible - 1 - q) rows further up.
            committed = self._states.total_len.gpu[self._slots].to(torch.int64).unsqueeze(1)
            source = self._index.unsqueeze(1) - (visible - 1 - position)
            drafted = self._inputs[source.clamp(0, self._inputs.shape[0] - 1)].to(torch.int64)
            held = torch.where(position < committed, held, drafted)
        tokens: torch.Tensor = held.masked_fill_(position >= visible, -1)
        return tokens
