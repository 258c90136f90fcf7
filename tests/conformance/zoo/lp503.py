"""Defects that LP503 must catch."""

from __future__ import annotations

from typing import Any

import lpkit
import torch

from zoo.correct.portable_odd import SharesKnownPrompt
from zoo.correct.v1_history import NoRepeatBigram
from zoo.registry import defect


@defect("LP503", "len() of a prompt that may be None")
class NeedsPrompt(NoRepeatBigram):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        if self.read(params) is None:
            return None
        assert len(prompt) >= 0  # type: ignore[arg-type]
        return prompt, outputs


@defect("LP503", "divides by the length of a prompt that may have none")
class SharesPrompt(SharesKnownPrompt):
    def length(self, rows: lpkit.Rows) -> torch.Tensor:
        return rows.prompt_len
