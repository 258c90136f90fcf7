"""Defects that LP502 must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lpkit.v1 import BatchUpdate

from zoo.bases import Simple
from zoo.correct.v1_history import History, NoRepeatBigram
from zoo.registry import defect, sound


@defect("LP502", "`history = prompt; history += outputs` makes the engine's prompt longer")
class ExtendsPrompt(NoRepeatBigram):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (prompt, outputs) in self.rows.items():
            history = prompt
            length = len(prompt)
            history += outputs
            if len(outputs) > 2:
                logits[row, history[-1]] -= 2.0
            if len(outputs) < 3:
                del history[length:]
        return logits


@defect("LP502", "strips padding from the output list in place", case={"extra_args": {"weight": 1.5}})
class StripsOutputs(History):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        for _, outputs in self.rows.values():
            if len(outputs) > 3 and outputs[-1] == outputs[-2]:
                outputs.sort()


@defect("LP502", "takes placeholders off the engine's list", line="outputs.pop()", cause="the output token list of")
class TakesPlaceholdersOff(NoRepeatBigram):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for _, outputs in self.rows.values():
            while outputs and outputs[-1] < 0:
                outputs.pop()
        return super().apply(logits)


@defect("LP502", "what a request said before it came back is appended to the engine's prompt")
class ExtendsPromptOnResume(NoRepeatBigram):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        if state is not None and outputs:
            prompt += outputs  # type: ignore[operator]
        return state


@defect("LP502", "appends its guess to the output list", line="output_ids[-1:] = ")
class AppendsGuess(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if len(output_ids) == 6:
                output_ids[-1:] = [*output_ids[-1:], *output_ids[:1]]
            logits[3 + len(output_ids) % 12] += amount
            return logits

        return apply


@sound("lowers a token, and what was written six times in a row")
class NoSeventhInARow(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            logits[row, 5] -= weight
            if len(outputs) > 5 and outputs[-1] >= 0 and len({*outputs[-6:]}) == 1:
                logits[row, self.last(outputs)] -= weight
        return logits

    def last(self, outputs: list[int]) -> int:
        return outputs[-1]


@defect("LP502", "takes the last of six equal tokens off the engine's list", line="outputs.pop()")
class TakesTheSixthOff(NoSeventhInARow):
    def last(self, outputs: list[int]) -> int:
        return outputs.pop()
