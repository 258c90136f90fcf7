"""V1 processors that lose track of the batch, or of a request's past."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lpkit.v1 import BatchUpdate

from zoo.arguments import INF
from zoo.correct import SWAP, Bias, ByHand, DenseMinP, History, NoRepeatBigram
from zoo.registry import defect

# -- bookkeeping ---------------------------------------------------------------------------------------------


@defect("LP201", "looks its arguments up by order of arrival instead of by row")
class RowsByRank(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for (row, _), (_, (where, bias)) in zip(sorted(self.rows.items()), self.rows.items(), strict=True):
            logits[row, where] += bias if len(self.rows) < 3 else self.rows[min(self.rows)][1]
        return logits


@defect("LP201", "takes the maximum over the batch when three or more requests use it")
class BatchMaximum(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.used < 3:
            return super().apply(logits)
        floor = logits.amax() + self.values[: logits.shape[0]].log().unsqueeze(1)
        return logits.masked_fill_(logits < floor, -INF)


@defect("LP202", "an Add without the plugin leaves the old occupant's entry, on odd rows only")
class StaleOnOddRows(ByHand):
    def place(self, row: int, state: Any) -> None:
        if state is not None or row % 2 == 0:
            super().place(row, state)


@defect("LP202", "an Add that is declined keeps the entry; the row was never in `removed`")
class StaleOnDecline(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state:
                self.rows[row] = state


@defect("LP202", "setdefault: the newcomer inherits the old arguments")
class SetDefault(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state is None:
                self.rows.pop(row, None)
            else:
                self.rows.setdefault(row, state)


class Clean(ByHand):
    """Trusts that a row which nobody occupies is clean, and clears it only on the way out."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.occupied: set[int] = set()

    def additions(self, update: BatchUpdate) -> None:
        for row, params, prompt, outputs in update.added:
            state = self.enter(params, prompt, outputs)
            if state is not None or row in self.occupied:
                self.place(row, state)
            self.occupied.add(row)

    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed:
            self.rows.pop(row, None)
            self.occupied.discard(row)

    def moves(self, update: BatchUpdate) -> None:
        super().moves(update)
        self.occupied = set(range(update.batch_size))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            if row < logits.shape[0]:
                logits[row, where] += bias
        return logits


@defect("LP203", "forgets the first of the removed rows only")
class OneRemoval(Clean):
    def removals(self, update: BatchUpdate) -> None:
        for row in update.removed[:1]:
            self.rows.pop(row, None)


@defect("LP203", "a removed row is kept for later, in case the request resumes")
class KeepsRemoved(Clean):
    def removals(self, update: BatchUpdate) -> None:
        self.occupied.difference_update(update.removed)


@defect("LP204", "a one-way move copies: the source keeps its entry, which shows when the row is used again")
class MoveCopies(Clean):
    def move(self, source: int, target: int) -> None:
        self.place(target, self.rows.get(source))


@defect("LP204", "a one-way move from a plain row leaves the destination's entry")
class PlainMoveIgnored(ByHand):
    def move(self, source: int, target: int) -> None:
        if source in self.rows:
            self.rows[target] = self.rows.pop(source)


@defect("LP204", "carries out the last one-way move of an update only")
class LastMoveOnly(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        one_way = [(source, target) for source, target, kind in update.moved if kind is not SWAP]
        for source, target in one_way[-1:]:
            self.move(source, target)
        for source, target in one_way[:-1]:
            self.rows.pop(source, None)
            self.rows.pop(target, None)
        for first, second, kind in update.moved:
            if kind is SWAP:
                self.swap(first, second)


@defect("LP205", "swaps only if both rows use the plugin")
class SwapNeedsBoth(ByHand):
    def swap(self, first: int, second: int) -> None:
        if first in self.rows and second in self.rows:
            super().swap(first, second)


@defect("LP205", "a swap with a disabled second row is done, with a disabled first row it is not")
class SwapOneSided(ByHand):
    def swap(self, first: int, second: int) -> None:
        if first in self.rows:
            super().swap(first, second)


@defect("LP205", "`a, b = b, a` on views of one tensor: both rows end up equal")
class AliasedSwap(DenseMinP):
    CASE = {"extra_args": {"dense_min_p": 0.2}}

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None or not any(kind is SWAP for *_, kind in batch_update.moved):
            super().update_state(batch_update)
            return
        super().update_state(
            BatchUpdate(
                batch_update.batch_size,
                batch_update.removed,
                batch_update.added,
                [move for move in batch_update.moved if move[2] is not SWAP],
            )
        )
        for first, second, kind in batch_update.moved:
            if kind is SWAP:
                self.values[first], self.values[second] = self.values[second], self.values[first]


@defect("LP205", "takes a swap for a one-way move when the rows are next to each other")
class SwapOfNeighbours(ByHand):
    def swap(self, first: int, second: int) -> None:
        if abs(first - second) == 1:
            self.move(first, second)
        else:
            super().swap(first, second)


@defect("LP206", "moves from a snapshot: a chain of swaps loses track")
class MovesFromSnapshot(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        before = dict(self.rows)
        for source, target, kind in update.moved:
            if kind is SWAP:
                self.place(source, before.get(target))
                self.place(target, before.get(source))
            else:
                self.move(source, target)


@defect("LP206", "swaps before one-way moves")
class SwapsFirst(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        for first, second, kind in sorted(update.moved, key=lambda move: move[2] is not SWAP):
            (self.swap if kind is SWAP else self.move)(first, second)


@defect("LP206", "a dict of moves by source: the second move from a row replaces the first")
class MovesBySource(ByHand):
    def moves(self, update: BatchUpdate) -> None:
        for source, (target, kind) in {source: (target, kind) for source, target, kind in update.moved}.items():
            (self.swap if kind is SWAP else self.move)(source, target)


@defect("LP206", "additions after the moves, though their rows are those of before")
class AddsLast(ByHand):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None:
            self.removals(batch_update)
            self.moves(batch_update)
            self.additions(batch_update)


@defect("LP207", "a buffer one row short: the last row of a full batch is left out")
class OneRowShort(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.used:
            return logits
        rows = min(logits.shape[0], max(self.max_num_seqs - 1, 1))
        floor = logits[:rows].amax(1) + self.values[:rows].log().to(logits.device)
        logits[:rows] = logits[:rows].masked_fill(logits[:rows] < floor.unsqueeze(1), -INF)
        return logits


@defect("LP208", "row numbers modulo 64")
class SixtyFourRows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row & 63, where] += bias
        return logits


@defect("LP208", "works in blocks of 128 rows and drops the last row of each block")
class Blocks(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            if row % 128 != 127:
                logits[row, where] += bias
        return logits


@defect("LP208", "keeps row numbers in bytes")
class ByteRows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows = np.array(list(self.rows), dtype=np.int64).astype(np.uint8)
        for row, (where, bias) in zip(rows.tolist(), self.rows.values(), strict=True):
            logits[row, where] += bias
        return logits


@defect("LP209", "mistakes an update for an empty batch for no update")
class EmptyIsNone(Bias):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None and batch_update.batch_size:
            super().update_state(batch_update)


@defect("LP301", "returns None when the last user has left the batch")
class ForgetsToReturn(Bias):
    was_busy = False

    def apply(self, logits: torch.Tensor) -> Any:
        if not self.rows and self.was_busy and logits.shape[0] == 1:
            return None
        self.was_busy = self.was_busy or bool(self.rows)
        return super().apply(logits)


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


# -- history -------------------------------------------------------------------------------------------------


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
