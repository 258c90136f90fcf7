"""V1 processors that misread a request's past."""

from __future__ import annotations

from typing import Any

import torch
from lpkit.v1 import BatchUpdate

from zoo.registry import defect
from zoo.v1_history_correct import History, NoRepeatBigram


@defect("LP501", "reads the newest token in update_state, where it may still be -1")
class ReadsEarly(History):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        for state in self.rows.values():
            state[2:] = state[1][-1:]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, _, *last) in self.rows.items():
            if last:
                logits[row, last[0]] -= weight
        return logits


@defect("LP501", "copies the output list whenever the batch changes, and extends the copy by what is new")
class CopiesOutputs(History):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        for state in self.rows.values():
            state[2:] = [list(state[1])]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, _, copied) in self.rows.items():
            if copied:
                logits[row, torch.tensor(sorted(set(copied)))] -= weight
        return logits


@defect("LP220", "reads all lists anew when a request comes back, those of others too, whose newest token may be -1")
class ReadsAllOnResume(History):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        resumed = batch_update is not None and any(outputs for *_, outputs in batch_update.added)
        for state in self.rows.values():
            if resumed or len(state) == 2:
                state[2:] = [list(state[1])]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, read) in self.rows.items():
            read += outputs[len(read) :]
            if known := sorted(token for token in set(read) if token >= 0):
                logits[row, torch.tensor(known)] -= weight
        return logits


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


@defect("LP502", "what a request said before it came back is appended to the engine's prompt")
class ExtendsPromptOnResume(NoRepeatBigram):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        if state is not None and outputs:
            prompt += outputs  # type: ignore[operator]
        return state


@defect("LP221", "a window of the last 64 tokens is what it leaves of the engine's output list")
class TrimsOutputs(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            del outputs[:-64]
            if known := sorted({token for token in outputs if token >= 0}):
                logits[row, torch.tensor(known)] -= weight
        return logits


@defect("LP503", "len() of a prompt that may be None")
class NeedsPrompt(NoRepeatBigram):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        if self.read(params) is None:
            return None
        assert len(prompt) >= 0  # type: ignore[arg-type]
        return prompt, outputs


@defect("LP504", "a latch that the logits of an earlier step set; it survives preemption by id(params)")
class Latch(History):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.latched: dict[tuple[int, int], int] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs, id(prompt)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if len(self.latched) > 64:
            self.latched.clear()
        for row, (weight, outputs, key) in self.rows.items():
            if len(outputs) == 1:
                self.latched[key, 0] = int(logits[row].argmax())
            if len(outputs) > 1 and (key, 0) in self.latched:
                logits[row, self.latched[key, 0]] -= weight
        return logits


@defect("LP505", "reads the last token without asking whether it is known: -1 is the vocabulary's last")
class TakesPlaceholders(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if outputs:
                logits[row, outputs[-1]] -= weight
        return logits


@defect("LP505", "asks whether the list begins with a placeholder: that of a request that came back begins with tokens")
class AsksTheFirst(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if outputs and outputs[0] >= 0:
                logits[row, outputs[-1]] -= weight
        return logits


@defect("LP505", "one list with a placeholder, and the whole batch is left unedited")
class GivesUpOnAll(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if any(-1 in outputs for _, outputs in self.rows.values()):
            return logits
        return super().apply(logits)


@defect("LP506", "a count that only ever goes up")
class OnlyUp(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs, 0]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            state[2] = max(state[2], len(state[1]))
            logits[row, 3 + state[2] % 12] += state[0]
        return logits
