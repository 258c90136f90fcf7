"""V1 processors that lose count: of twins, of resumed requests, of steps and of long runs."""

from __future__ import annotations

from typing import Any

import torch
from lpkit.v1 import BatchUpdate

from zoo.registry import defect
from zoo.v1_correct import SWAP, ByHand
from zoo.v1_history_correct import History


@defect("LP210", "state keyed by id(params): twins share the output list of the younger one")
class TwinsById(History):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.by_id: dict[int, Any] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        if state is None:
            return None
        if len(self.by_id) > 512:
            self.by_id = {key: self.by_id[key] for key in self.rows.values()}
        self.by_id[id(params)] = state
        return id(params)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, key in self.rows.items():
            weight, outputs = self.by_id[key]
            if outputs and outputs[-1] >= 0:
                logits[row, outputs[-1]] -= weight
        return logits


@defect("LP210", "state keyed by the prompt: twins share it")
class TwinsByPrompt(History):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.by_prompt: dict[tuple[int, ...], list[Any]] = {}

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        self.by_prompt = {key: s for key, s in self.by_prompt.items() if any(s is own for own in self.rows.values())}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        return None if state is None else self.by_prompt.setdefault(tuple(prompt or ()), state)


class Relative(History):
    """Acts by the number of outputs since some start."""

    def start(self, outputs: list[int]) -> int:
        return 0

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        return None if state is None else [*state, self.start(outputs)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, start) in self.rows.items():
            logits[row, 3 + (len(outputs) - start) % 12] += weight
        return logits


@defect("LP211", "counts outputs from the Add on: a resumed request starts again")
class StartsAtAdd(Relative):
    def start(self, outputs: list[int]) -> int:
        return len(outputs)


@defect("LP211", "starts again on resumption, once the output is longer than five tokens")
class StartsLateAtAdd(Relative):
    def start(self, outputs: list[int]) -> int:
        return len(outputs) if len(outputs) > 5 else 0


@defect("LP211", "knows a request by its prompt list, and goes on with the output list that came first")
class OldList(History):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lists: dict[int, tuple[Any, list[int]]] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        if weight is None:
            return None
        if not outputs:
            self.lists = dict(list(self.lists.items())[-63:]) | {id(prompt): (prompt, outputs)}
        return [weight, self.lists.setdefault(id(prompt), (prompt, outputs))[1]]


@defect("LP303", "advances a counter in apply")
class CountsApplies(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, len(outputs)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            logits[row, 3 + state[1] % 12] += state[0]
            state[1] += 1
        return logits


@defect("LP212", "takes its first apply for the first token, and remembers the request's best token then")
class FirstApply(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs, None]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in self.rows.items():
            if state[2] is None and len(state[1]) == 0:
                state[2] = int(logits[row].argmax())
            if state[2] is not None and len(state[1]) == 1:
                logits[row, state[2]] -= state[0]
        return logits


@defect("LP213", "advances a counter in every update_state")
class CountsUpdates(CountsApplies):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        for state in self.rows.values():
            state[1] += 1

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, count) in self.rows.items():
            logits[row, 3 + count % 12] += weight
        return logits


@defect("LP201", "refreshes its lengths only when the batch changed")
class RefreshesOnChange(Relative):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        if batch_update is not None:
            for state in self.rows.values():
                state[2] = len(state[1])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, _, length) in self.rows.items():
            logits[row, 3 + length % 12] += weight
        return logits


@defect("LP213", "additions wait for the next apply; those of a step without tokens are overwritten")
class StagedOnce(ByHand):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.staged: dict[int, Any] = {}

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self.staged = {}
        super().update_state(batch_update)

    def place(self, row: int, state: Any) -> None:
        self.rows.pop(row, None)
        self.staged.pop(row, None)
        if state is not None:
            self.staged[row] = state

    def move(self, source: int, target: int) -> None:
        self.place(target, self.take(source))

    def swap(self, first: int, second: int) -> None:
        one, other = self.take(first), self.take(second)
        self.place(first, other)
        self.place(second, one)

    def take(self, row: int) -> Any:
        self.rows.update({row: self.staged.pop(row)} if row in self.staged else {})
        return self.rows.pop(row, None)

    def removals(self, update: BatchUpdate) -> None:
        super().removals(update)
        for row in update.removed:
            self.staged.pop(row, None)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.rows.update(self.staged)
        self.staged = {}
        return super().apply(logits)


@defect("LP214", "a flat table with 32 places per row: the 33rd token of a row lands in the next one's")
class FlatTable(Relative):
    WIDTH = 32

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        table = [0] * ((logits.shape[0] + 8) * self.WIDTH * 4)
        for row, (_, outputs, _) in self.rows.items():
            for n, item in enumerate(outputs):
                table[row * self.WIDTH + n] += 1 + item % 3
        for row, (weight, _, _) in self.rows.items():
            total = sum(table[row * self.WIDTH : (row + 1) * self.WIDTH])
            logits[row, 3 + total % 12] += weight
        return logits


@defect("LP202", "after the ninth token reads the newest list of all instead of its own")
class SharedAfterNine(Relative):
    newest: list[int] = []

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        if state is not None:
            self.newest = outputs
        return state

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, _) in self.rows.items():
            logits[row, 3 + len(outputs if len(outputs) <= 9 else self.newest) % 12] += weight
        return logits


@defect("LP219", "forgets a row whose request is removed and another added while a swap is in the same update")
class ThreeAtOnce(ByHand):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        if batch_update is not None:
            kinds = {kind for *_, kind in batch_update.moved}
            if len(kinds) == 2 and len(batch_update.added) > 0 and batch_update.removed:
                self.rows.pop(batch_update.added[-1][0], None)


@defect("LP214", "prompts of more than 32 tokens share one scratch list")
class SharedScratch(History):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.scratch: list[int] = []

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        if state is None or prompt is None:
            return state
        if len(prompt) > 32:
            self.scratch[:] = prompt
            prompt = self.scratch
        return [*state, prompt]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, _, prompt) in self.rows.items():
            logits[row, prompt[-1]] -= weight
        return logits


@defect("LP504", "parks the progress of one preempted request; a second preemption overwrites it")
class ParksOne(ByHand):
    CASE = {"extra_args": {"weight": 1.5}}
    read = History.read

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.parked: tuple[Any, int] = (None, 0)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        owner, start = self.parked
        if outputs and owner is not prompt:
            start = len(outputs)  # all there is to go by
        return None if weight is None else [weight, outputs, start if outputs else 0, prompt]

    def place(self, row: int, state: Any) -> None:
        left = self.rows.pop(row, None)
        if left is not None:
            self.parked = (left[3], left[2])
        if state is not None:
            self.rows[row] = state

    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed:
            self.place(row, None)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, start, _) in self.rows.items():
            logits[row, 3 + (len(outputs) - start) % 12] += weight
        return logits


@defect("LP219", "carries out the first three swaps of an update")
class ThreeSwaps(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        one_way = [move for move in update.moved if move[2] is not SWAP]
        swaps = [move for move in update.moved if move[2] is SWAP]
        for source, target, _ in one_way:
            self.move(source, target)
        for first, second, _ in swaps[:3]:
            self.swap(first, second)


@defect("LP220", "packs the two rows of a swap into three bits each, as if no batch had more than eight rows")
class SmallSwaps(ByHand):
    def swap(self, first: int, second: int) -> None:
        packed = (first % 8) << 3 | second % 8
        super().swap(packed >> 3, packed % 8)
