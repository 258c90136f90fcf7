"""The engines' built-in thinking budget: after that many tokens of a thought, its end marker is forced.

This is a stage of the engines that follows the plugins, not a processor. Each runner has its own rule. Both write 1e9
rather than mask the other tokens, so a forced marker wins whatever logit it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lpkit.interfaces.config import ThinkingMarkers
from lpkit.runtime.sampler.stages import write_tokens
from lpkit.v1 import BatchUpdate, MoveDirectionality

FORCED = 1e9
"""Logit that the engines write at the forced token."""


def last_occurrence(ids: Sequence[int], wanted: Sequence[int]) -> int:
    """Return the start of the last ``wanted`` in ``ids``; -1 if it does not occur or is empty."""
    wanted = list(wanted)
    for place in range(len(ids) - len(wanted), -1, -1) if wanted else ():
        if list(ids[place : place + len(wanted)]) == wanted:
            return place
    return -1


# -- V2: a function of the tokens ----------------------------------------------------------------------------


def forced_token(tokens: Sequence[int], budget: int | None, markers: ThinkingMarkers) -> int | None:
    """Return the token that V2 forces behind ``tokens`` (prompt, outputs and the row's drafts), or None.

    A thought is open if the last start marker stands behind the last end marker. Once it is ``budget`` tokens long, the
    end marker is forced token by token. If the tokens already end with a part of it, that part is not repeated.
    """
    ends = markers.natural_end or markers.end
    if budget is None or not markers.complete:
        return None
    begun = last_occurrence(tokens, markers.start)
    if begun <= last_occurrence(tokens, ends):
        return None
    if len(tokens) - (begun + len(markers.start)) < budget:
        return None
    for written in range(min(len(markers.end) - 1, len(tokens)), 0, -1):
        if tuple(tokens[-written:]) == markers.end[:written]:
            return markers.end[written]
    return markers.end[0]


# -- V1: a state per request ---------------------------------------------------------------------------------


@dataclass
class Thought:
    """V1's state of a request with a budget.

    Attributes:
        start, end: where the markers stand, counted from the first output (of a thought that the prompt opened:
            from the first prompt token, less one); -1: not seen.
        searched: number of outputs already searched for markers.
        seen: number of outputs already counted.
        thought: tokens of the thought so far. ``left``: rest of the budget.
        from_prompt: True if the prompt ends inside the thought.
        ending: True while the end marker is forced; ``written`` of its tokens are already outputs.
        first_forced: True if its first token was forced, which must not be repeated before the commit.
    """

    budget: int
    prompt_len: int
    left: int
    thinking: bool = False
    thought: int = 0
    start: int = -1
    end: int = -1
    searched: int = 0
    seen: int = 0
    from_prompt: bool = False
    ending: bool = False
    written: int = 0
    first_forced: bool = False

    @classmethod
    def of(cls, prompt: Sequence[int] | None, budget: int, markers: ThinkingMarkers) -> Thought:
        """Make the state of a request that enters the batch; its outputs are read later, all at once."""
        prompt = prompt or ()
        begun = last_occurrence(prompt, markers.start)
        if begun <= last_occurrence(prompt, markers.end):
            return cls(budget, len(prompt), budget)
        thought = len(prompt) - (begun + len(markers.start))
        return cls(
            budget,
            len(prompt),
            budget - thought,
            thinking=True,
            thought=thought,
            start=len(prompt) - thought - 1,
            from_prompt=True,
            ending=budget <= thought,
        )

    def advance(self, outputs: Sequence[int], markers: ThinkingMarkers) -> None:
        """Read the committed ``outputs`` and decide if the marker is forced."""
        if not markers.end:
            self.ending = False
            return
        self._search(outputs, markers)
        if not self.ending and self.start >= 0 and self.end > self.start and not self.from_prompt:
            self._over(outputs)
            self.left = self.budget
            return
        if self.start == -1:
            return
        fresh = len(outputs) - self.seen
        if not self.from_prompt and self.seen == 0:
            fresh -= len(markers.start)
        within = self.left - fresh - 1 >= 0
        ended_by_model = self.from_prompt and self.end != -1
        if not self.ending and within and not ended_by_model:
            self.left -= fresh
            self.seen = len(outputs)
        elif len(outputs) > self.seen:
            self._decide(outputs, markers)

    def _search(self, outputs: Sequence[int], markers: ThinkingMarkers) -> None:
        recent = outputs[self.searched :]
        for name in ("start", "end"):
            if getattr(self, name) == -1:
                place = last_occurrence(recent, getattr(markers, name))
                setattr(self, name, place + self.searched if place >= 0 else -1)

    def _over(self, outputs: Sequence[int]) -> None:
        """End the thought and look for the next thought behind it."""
        self.thinking = self.from_prompt = False
        self.thought = 0
        self.start = self.end = -1
        self.searched = len(outputs)

    def _decide(self, outputs: Sequence[int], markers: ThinkingMarkers) -> None:
        new = outputs[self.seen :]
        self.seen = len(outputs)
        # The forced marker did not become an output: the thought continues.
        if self.ending and self.written == 0 and markers.end[0] not in new:
            self.thinking, self.ending, self.first_forced = True, False, False
        if self.ending:
            self._write_on(outputs, markers)
        else:
            self._count(outputs, markers)

    def _count(self, outputs: Sequence[int], markers: ThinkingMarkers) -> None:
        end = self.end + self.prompt_len if self.from_prompt and self.end > -1 else self.end
        if end >= 0 and not (self.start > end):
            self._over(outputs)
        elif end >= 0 or not self.from_prompt:
            self.thinking = True
            self.thought = len(outputs) - (self.start + len(markers.start))
        elif self.thinking:
            self.thought = len(outputs) + self.prompt_len - (self.start + len(markers.start))
        self.left = max(0, self.budget - self.thought) if self.thinking else self.budget
        if self.thinking and self.thought + 1 > self.budget:
            self.thinking, self.ending, self.written = False, True, 0
            self.left = self.budget

    def _write_on(self, outputs: Sequence[int], markers: ThinkingMarkers) -> None:
        """Record that one more token of the end marker was written."""
        self.written += 1
        if self.written >= len(markers.end):
            self.ending, self.written = False, 0
            self.left = self.budget
            self.start = self.end = -1
            self.thought = 0
            self.from_prompt = False
            self.searched = len(outputs)


class V1ThinkingBudget:
    """V1's stage behind the penalties. It has no drafts, because V1 runs no custom processors with drafts."""

    def __init__(self, markers: ThinkingMarkers) -> None:
        self.markers = markers
        self.thoughts: dict[int, Thought] = {}

    @property
    def has_tracked_requests(self) -> bool:
        """True if a request of the batch has a budget; V1 then repairs the output lists."""
        return bool(self.thoughts)

    def sync(self, update: BatchUpdate | None) -> None:
        """Follow the batch: additions, removals and moves.

        vLLM's fault is shared: where a request without a budget moves in, the budget of the row stays.
        """
        if update is None:
            return
        thoughts = self.thoughts
        for row in update.removed:
            thoughts.pop(row, None)
        for row, params, prompt, _ in update.added:
            thoughts.pop(row, None)
            if params.thinking_token_budget is not None:
                thoughts[row] = Thought.of(prompt, params.thinking_token_budget, self.markers)
        for source, target, kind in update.moved:
            taken = thoughts.pop(source, None)
            if kind is MoveDirectionality.SWAP:
                back = thoughts.pop(target, None)
                if back is not None:
                    thoughts[source] = back
            if taken is not None:
                thoughts[target] = taken

    def advance(self, outputs: Sequence[Sequence[int]]) -> None:
        """Read the output tokens, by row, before sampling."""
        for row, thought in self.thoughts.items():
            if row < len(outputs):
                thought.advance(outputs[row], self.markers)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Force end markers in ``logits``, one row per request, in place."""
        rows: list[int] = []
        ids: list[int] = []
        for row in sorted(self.thoughts):
            thought = self.thoughts[row]
            if not thought.ending:
                continue
            if thought.written > 0:
                thought.first_forced = False
            if not thought.first_forced and row < logits.shape[0]:
                rows.append(row)
                ids.append(self.markers.end[thought.written])
            # Later tokens of the marker are decided again; the first token must not be forced twice.
            thought.first_forced = thought.written == 0
        return write_tokens(logits, rows, ids, FORCED)
