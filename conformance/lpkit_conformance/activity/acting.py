"""The steps at which a plugin acts: found once per subject, in a longer run and a ladder of lengths beyond it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise

from lpkit_conformance.activity.shape import UNTOUCHED, Shape, shapes
from lpkit_conformance.activity.stand import RUN_STEPS, Stance, Standing, arrivals, stand_after, stand_at
from lpkit_conformance.activity.triggers import sweep
from lpkit_conformance.errors import StandinError
from lpkit_conformance.hosts import PluginError, default_host
from lpkit_conformance.programs.generate import Step
from lpkit_conformance.results import Blocked
from lpkit_conformance.subject.memo import fact
from lpkit_conformance.subject.setup import MAX_MODEL_LEN
from lpkit_conformance.subject.subject import Subject

LADDER = (48, 64, 96, 128, 192, 256, 384, 480)
"""Lengths of outputs beyond the run."""

LEAST_VARIANTS = 4
MOST_STANCES = 14


class Activity:
    """The steps at which a plugin acts on one host.

    Args:
        subject: the plugin and its requests.

    Attributes:
        seen: by variant, each length of its outputs in order, and the plugin's edit of its row at that length.
        raises: True if the plugin raised an exception meanwhile; the checks that run programs report it.
        raised: the exception in everyday steps, if any, and how many output tokens the requests had.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.seen: dict[int, list[tuple[int, Shape]]] = {i: [] for i in subject.variants}
        self.raises = False
        self.raised: tuple[PluginError, int] | None = None
        for look in (self._run, self._climb):
            try:
                look()
            except (PluginError, Blocked, StandinError) as error:
                self.raises = True
                if look == self._run and isinstance(error, PluginError):
                    self.raised = error, 1 + max((length for length, _ in self.seen[0]), default=-1)

    @property
    def lengths(self) -> list[int]:
        """Output lengths at which rows were edited, of all variants."""
        return [length for seen in self.seen.values() for length, shape in seen if shape != UNTOUCHED]

    @property
    def acts(self) -> bool:
        """True if any row was edited."""
        return bool(self.lengths)

    @property
    def silent(self) -> bool:
        """True if no row of a request with the case as it is was edited; its relatives' may have been."""
        return not self.raises and all(shape == UNTOUCHED for _, shape in self.seen[0])

    @property
    def turns(self) -> list[int]:
        """Output lengths at which the case's own request begins to be edited, or ceases."""
        acts = [(length, shape != UNTOUCHED) for length, shape in self.seen[0]]
        return [length for (_, before), (length, now) in pairwise(acts) if before != now]

    @cached_property
    def stances(self) -> tuple[Stance, ...]:
        """Stances to judge: where each variant starts to act, where the kind of its edit changes, and late."""
        chosen = [_telling(seen) for seen in self.seen.values()]
        # First of all variants, then second of all, so that a limit takes from the longest lists.
        picked = [
            (variant, lengths[rank])
            for rank in range(max(map(len, chosen), default=0))
            for variant, lengths in enumerate(chosen)
            if rank < len(lengths)
        ]
        return tuple(Stance(variant, _character(variant), length) for variant, length in picked[:MOST_STANCES])

    @cached_property
    def triggers(self) -> list[Stance]:
        """Stances in which a single token changes the plugin's action."""
        return sweep(self._subject)

    @cached_property
    def strangers(self) -> tuple[Stance, ...]:
        """Requests in the same batch that do not use the plugin, young and old."""
        if not self._subject.foreign:
            return ()
        lengths = sorted(stance.length for stance in self.stances)
        return tuple(Stance(None, f"stranger {i}", length) for i, length in enumerate({lengths[0], lengths[-1]}))

    def standings(self) -> Iterator[Standing]:
        """Return new batches of requests at these steps; no batch if the plugin never acts."""
        if not self.stances:
            return
        try:
            standing = stand_at(self._subject, [*self.stances, *self.triggers, *self.strangers])
            if standing.acts:
                yield standing
                return
        except PluginError as error:
            if error.method == "apply":
                raise
        # A plugin that forgets requests which arrive with output (LP211), or raises for them (LP104), acts on requests
        # that generate it here.
        first = self.stances[0]
        if first.length < RUN_STEPS:
            yield stand_after(self._subject, arrivals(self._subject.variants), first.length + 1)

    def _run(self) -> None:
        host = default_host(self._subject, max(self._subject.setup.max_num_seqs, len(self.seen)))
        for seen in host.run([*arrivals(self._subject.variants), Step(RUN_STEPS)]):
            for row, shape in zip(seen.rows, shapes(seen.before, seen.after), strict=True):
                active = host.pool.requests[row.request]
                assert active.variant is not None
                if not row.discarded:
                    self.seen[active.variant].append((row.position - active.request.prompt_len, shape))

    def _climb(self) -> None:
        """Longer outputs, each in a row of its own; then the lengths between which a late rule starts."""
        longest = max(len(self._subject.model.prompt(_character(i), 5, i)) for i in self.seen)
        rungs = [length for length in LADDER if length + longest < MAX_MODEL_LEN]
        ladder = [
            (variant, length)
            for variant in list(self.seen)[:LEAST_VARIANTS]
            for length in rungs
            if length < (self._subject.most_outputs(variant) or MAX_MODEL_LEN)
        ]
        self._note(ladder)
        self._note([(variant, length) for variant, seen in self.seen.items() for length in _unseen_starts(seen)])

    def _note(self, rows: Iterable[tuple[int, int]]) -> None:
        stances = [Stance(variant, _character(variant), length) for variant, length in rows]
        if not stances:
            return
        standing = stand_at(self._subject, stances)
        for stance, shape in zip(stances, shapes(standing.logits, standing.after), strict=True):
            assert stance.variant is not None
            self.seen[stance.variant].append((stance.length, shape))
        for seen in self.seen.values():
            seen.sort()


def _character(variant: int) -> str:
    return f"variant {variant}"


def _telling(seen: list[tuple[int, Shape]]) -> list[int]:
    """Return the most informative lengths of a variant: its first action, each new kind of edit, the last length."""
    kinds: dict[Shape, int] = {}
    acting = [(length, shape) for length, shape in seen if shape != UNTOUCHED]
    for length, shape in acting:
        kinds.setdefault(shape, length)
    if not acting:
        return []
    first, *others = kinds.values()
    return list(dict.fromkeys([first, acting[-1][0], *others]))


def _unseen_starts(seen: list[tuple[int, Shape]]) -> range:
    """Return the lengths that were left out before the first length at which a variant acts."""
    for (low, _), (high, shape) in pairwise(seen):
        if shape != UNTOUCHED:
            return range(low + 1, high)
    return range(0)


@fact
def activity(subject: Subject) -> Activity:
    """Return where the subject acts."""
    return Activity(subject)
