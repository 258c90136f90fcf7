"""The requests of a live batch, by row on V1 and by slot on V2, and the last steps, kept for a trace."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from lpkit.v1 import process_dict_updates

from lpkit_conformance.traces import Move
from lpkit_conformance.traces.placeholders import placeholders


class ServedRequest:
    """A request in the batch, from its entry until it leaves; one that resumes is another object.

    ``prompt_len`` counts its prompt's tokens, ``had`` the outputs that it entered with. ``outputs`` is V1's live list.
    """

    __slots__ = ("had", "opted_out", "outputs", "params", "prompt_len")

    def __init__(self, params: Any, prompt_len: int, had: int = 0, outputs: list[int] | None = None) -> None:
        self.params, self.prompt_len, self.had, self.outputs = params, prompt_len, had, outputs
        self.opted_out: dict[int, bool] = {}
        """True if a processor must leave the request's rows unchanged, by the processor's number."""

    @property
    def entered(self) -> int:
        """The tokens that it entered with."""
        return self.prompt_len + self.had

    def arguments(self, values: bool) -> dict[str, Any]:
        """Return its ``extra_args``: the names, with their values if ``values``, else with their types."""
        given = getattr(self.params, "extra_args", None) or {}
        return {str(key): _plain(value) if values else f"<{type(value).__name__}>" for key, value in given.items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return repr(value)[:200]


@dataclass
class KeptV1Step:
    """One ``update_state`` of V1, and the ``apply`` that followed it if ``applied``.

    Attributes:
        rows: the requests by row, after the update.
        before, after: the lengths of their outputs at this update and at the next; ``after`` is None until then.
        unknown: the number of a request's last outputs that were -1 at the update, without the requests that have
            none: asynchronous scheduling begins a step before it knows the previous step's tokens.
        updated: False if the engine sent None.
        removed, added, moved: the update; ``added`` as (row, request).
    """

    rows: tuple[ServedRequest, ...]
    before: list[int]
    unknown: dict[ServedRequest, int]
    updated: bool = False
    removed: tuple[int, ...] = ()
    added: tuple[tuple[int, ServedRequest], ...] = ()
    moved: tuple[Move, ...] = ()
    applied: bool = False
    after: list[int] | None = None


class V1Follower:
    """Follows V1's batch updates and keeps the last ``steps`` of them."""

    def __init__(self, steps: int) -> None:
        self.steps: deque[KeptV1Step] = deque(maxlen=steps)
        self.rows: tuple[ServedRequest, ...] = ()
        self._by_row: dict[int, ServedRequest] = {}

    def update(self, update: Any) -> None:
        """Begin a step."""
        lengths = _lengths(self.rows)
        if self.steps:
            last = self.steps[-1]
            last.after = lengths
            if any(now < then for now, then in zip(lengths, last.before, strict=True)):
                self.steps.clear()  # the engine cut a list: the steps before do not lead to the next one
        if update is None:
            self.steps.append(KeptV1Step(self.rows, lengths, _unknown(self.rows)))
            return
        entered: list[ServedRequest] = []

        def enter(params: Any, prompt: list[int] | None, outputs: list[int]) -> ServedRequest:
            entered.append(ServedRequest(params, len(prompt) if prompt is not None else 1, len(outputs), outputs))
            return entered[-1]

        process_dict_updates(self._by_row, update, enter)
        self.rows = tuple(self._by_row[row] for row in range(update.batch_size))
        self.steps.append(
            KeptV1Step(
                self.rows,
                _lengths(self.rows),
                _unknown(self.rows),
                updated=True,
                removed=tuple(update.removed),
                added=tuple((entry[0], request) for entry, request in zip(update.added, entered, strict=True)),
                moved=tuple(map(Move.of, update.moved)),
            )
        )

    def apply(self) -> None:
        """Note that this step processes logits."""
        if self.steps:
            self.steps[-1].applied = True


def _lengths(rows: tuple[ServedRequest, ...]) -> list[int]:
    return [len(request.outputs or ()) for request in rows]


def _unknown(rows: tuple[ServedRequest, ...]) -> dict[ServedRequest, int]:
    return {request: count for request in rows if (count := placeholders(request.outputs or ()))}


@dataclass
class KeptV2Step:
    """One step of V2.

    Attributes:
        added: (slot, request), in order.
        calls: per ``apply``, the slots and the visible lengths of its requests. None for a call with rows of drafts:
            only the device knows how many rows each request has.
    """

    added: list[tuple[int, ServedRequest]] = field(default_factory=list)
    calls: list[tuple[Any, Any] | None] = field(default_factory=list)


class V2Follower:
    """Follows V2's requests and keeps the last ``steps`` steps.

    Attributes:
        base: the slots before the first kept step.
        slots: the slots now. A request that left keeps its slot here until another takes it: V2 does not report it.
    """

    def __init__(self, steps: int) -> None:
        self.steps: deque[KeptV2Step] = deque()
        self.base: dict[int, ServedRequest] = {}
        self.slots: dict[int, ServedRequest] = {}
        self._most = steps
        self._entering: list[tuple[int, ServedRequest]] = []

    def add(self, slot: int, params: Any, prompt_len: int, filled: int) -> None:
        """Give ``slot`` to a request with ``filled`` tokens: its prompt, and the outputs that it resumes with."""
        request = ServedRequest(params, max(prompt_len, 1), max(filled - prompt_len, 0))
        self.slots[slot] = request
        self._entering.append((slot, request))

    def begin(self) -> None:
        """Begin a step, after its requests have entered."""
        self.steps.append(KeptV2Step(self._entering))
        self._entering = []
        if len(self.steps) > self._most:
            self.base.update(self.steps.popleft().added)

    def apply(self, ctx: Any, rows: int) -> None:
        """Record a call of ``apply`` with this number of rows."""
        if self.steps:
            slots = ctx.idx_mapping_np
            plain = rows == len(slots)
            self.steps[-1].calls.append((slots.copy(), ctx.seq_lens_upper_bound_np[:rows].copy()) if plain else None)
