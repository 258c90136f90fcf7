"""Validates a trace: one engine could have produced its events in this order.

A replay relies on this validation, so a hand-edited or half-recorded trace is refused before a plugin is blamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lpkit_conformance.errors import TraceError
from lpkit_conformance.traces.codec import Wrong
from lpkit_conformance.traces.schema import Apply, Placement, Trace, Update, V1Step, V2Step
from lpkit_conformance.vllm_api.runners import V1, V2

SIZES = ("max_num_seqs", "max_model_len", "vocab_size")
"""Settings that size a replay. Other engines have other settings, which may be anything."""


def validate(trace: Trace) -> None:
    """Raise TraceError, naming the line, at the first step that contradicts the header or the steps before it."""
    checker = {V1: _V1, V2: _V2}[trace.runner](trace)
    for index, step in enumerate(trace.steps):
        try:
            if step.step != index:
                raise Wrong(f"step is {step.step}; expected {index}")
            checker.step(step)
        except Wrong as wrong:
            raise TraceError(str(wrong), path=trace.path, line=index + 2) from None


class _Checker:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.outputs: dict[str, list[int]] = {}
        try:
            self._header()
        except Wrong as wrong:
            raise TraceError(str(wrong), path=trace.path, line=1) from None

    def _header(self) -> None:
        for size in SIZES:
            value = self.trace.settings.get(size)
            if type(value) is not int or value < 1:
                raise Wrong(f"settings.{size} is {value!r}; expected an integer of at least 1")
        for name, request in self.trace.requests.items():
            if request.prompt is not None and len(request.prompt) != request.prompt_len:
                count = len(request.prompt)
                raise Wrong(f"requests.{name} has {count} prompt ids; expected prompt_len = {request.prompt_len}")
            self._ids(request.prompt or (), f"the prompt ids of {name}")

    def step(self, step: V1Step | V2Step) -> None:
        raise NotImplementedError

    def require_listed(self, names: Sequence[str] | frozenset[str], what: str) -> None:
        for name in names:
            if name not in self.trace.requests:
                raise Wrong(f"{what} names {name!r}, which the header does not list")

    def commit(self, tokens: Mapping[str, tuple[int, ...]], committing: Sequence[str]) -> None:
        """Commit ``tokens``. Exactly the requests in ``committing`` must commit: requests with a row that is not
        discarded."""
        for name in tokens:
            if name not in committing:
                raise Wrong(f"{name!r} commits tokens, but no row of it was sampled and kept")
        for name in committing:
            if not tokens.get(name):
                raise Wrong(f"{name!r} has a sampled row that is not discarded, but commits no token")
            self._ids(tokens[name], f"tokens of {name}")
            output = self.outputs.setdefault(name, [])
            output.extend(tokens[name])
            length = self.trace.requests[name].prompt_len + len(output)
            if length > self.trace.max_model_len:
                raise Wrong(f"{name!r} is {length} tokens long; max_model_len is {self.trace.max_model_len}")

    def _ids(self, ids: Sequence[int], what: str) -> None:
        for token in ids:
            if token >= self.trace.vocab_size:
                raise Wrong(f"{what}: id {token} is not below vocab_size = {self.trace.vocab_size}")


class _V1(_Checker):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.rows: list[str] = []

    def step(self, step: V1Step | V2Step) -> None:
        assert isinstance(step, V1Step)
        self.require_listed(tuple(step.lists), "lists")
        for name, length in step.lists.items():
            output = self.outputs.setdefault(name, [])
            if length > len(output):
                raise Wrong(f"lists cuts {name!r} to {length}, but it only has {len(output)} tokens")
            del output[length:]
        if step.update is not None:
            self.rows = self._apply(step.update)
        if tuple(self.rows) != step.rows:
            raise Wrong(f"rows are {list(step.rows)}; the updates give {self.rows}")
        for name, count in step.placeholders.items():
            if name not in step.rows or count > len(self.outputs.get(name, ())):
                raise Wrong(f"placeholders has {count} for {name!r}, which has no row or not as many tokens")
        if stray := step.discarded - set(step.rows):
            raise Wrong(f"discarded names {sorted(stray)}, which have no row")
        committing = [name for name in step.rows if name not in step.discarded] if step.applied else []
        if not step.applied and step.discarded:
            raise Wrong("rows are discarded, but nothing was sampled")
        self.commit(step.tokens, committing)

    def _apply(self, update: Update) -> list[str]:
        limit = self.trace.max_num_seqs
        if update.batch_size > limit:
            raise Wrong(f"batch_size is {update.batch_size}; max_num_seqs is {limit}")
        rows: dict[int, str] = dict(enumerate(self.rows))
        if list(update.removed) != sorted(set(update.removed), reverse=True):
            raise Wrong(f"removed is {list(update.removed)}; expected strictly descending rows")
        for row in update.removed:
            if rows.pop(row, None) is None:
                raise Wrong(f"removed names row {row}, which was not occupied")
        entered: set[int] = set()
        for entry in update.added:
            self.require_listed([entry.request], "added")
            if entry.row in entered or entry.row >= limit:
                raise Wrong(f"added names row {entry.row} twice, or beyond max_num_seqs = {limit}")
            entered.add(entry.row)
            have = len(self.outputs.get(entry.request, ()))
            if entry.outputs != have:
                raise Wrong(f"{entry.request!r} enters with {entry.outputs} outputs; it has committed {have}")
            rows[entry.row] = entry.request
        for move in update.moved:
            if move.source == move.target or move.source not in rows:
                raise Wrong(f"move {move.source}{move.kind}{move.target}: nothing to move")
            if move.kind == "->":
                rows[move.target] = rows.pop(move.source)
            elif move.target not in rows:
                raise Wrong(f"move {move.source}<->{move.target}: row {move.target} is empty")
            else:
                rows[move.source], rows[move.target] = rows[move.target], rows[move.source]
        if sorted(rows) != list(range(update.batch_size)):
            raise Wrong(f"occupied rows are {sorted(rows)}; batch_size is {update.batch_size}")
        result = [rows[row] for row in range(update.batch_size)]
        if len(set(result)) != len(result):
            raise Wrong(f"a request has two rows: {result}")
        return result


class _V2(_Checker):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.slots: dict[str, int] = {}
        self.prefill: dict[str, int] = {}

    def step(self, step: V1Step | V2Step) -> None:
        assert isinstance(step, V2Step)
        for name in step.freed:
            if self.slots.pop(name, None) is None:
                raise Wrong(f"freed names {name!r}, which has no slot")
        for added in step.added:
            self._enter(added)
        if step.added and not step.flush:
            raise Wrong("requests were added, but no flush follows")
        committing: list[str] = []
        for call in step.applies:
            self._call(call)
            self._accepted(call, step.tokens)
            committing += [name for name in call.requests if name not in call.discarded]
        if len(set(committing)) != len(committing):
            raise Wrong("a request has rows in two apply calls of one step")
        self.commit(step.tokens, committing)

    def _enter(self, added: Placement) -> None:
        self.require_listed([added.request], "added")
        if added.request in self.slots:
            raise Wrong(f"{added.request!r} is added, but already has slot {self.slots[added.request]}")
        if added.slot >= self.trace.max_num_seqs or added.slot in self.slots.values():
            raise Wrong(f"{added.request!r} enters slot {added.slot}, which is taken or does not exist")
        prompt_len = self.trace.requests[added.request].prompt_len
        total = prompt_len + len(self.outputs.get(added.request, ()))
        if (added.prompt_len, added.prefill_len) != (prompt_len, total):
            raise Wrong(
                f"{added.request!r} enters with prompt_len {added.prompt_len} and prefill_len {added.prefill_len}; "
                f"expected {prompt_len} and {total}"
            )
        self.slots[added.request] = added.slot
        self.prefill[added.request] = added.prefill_len

    def _call(self, call: Apply) -> None:
        for name in call.rows:
            if name not in self.slots:
                raise Wrong(f"a row belongs to {name!r}, which has no slot")
        lengths = {len(call.rows), len(call.pos), len(call.local), len(call.inputs)}
        if len(lengths) != 1:
            raise Wrong("rows, pos, local and inputs differ in length")
        if len(call.bounds) < len(call.requests) or any(call.bounds[len(call.requests) :]):
            raise Wrong("bounds must hold one length per request, then only zeros")
        if stray := call.discarded - set(call.rows):
            raise Wrong(f"discarded names {sorted(stray)}, which have no row")
        last: str | None = None
        expected = 0
        for name, pos, local, token in zip(call.rows, call.pos, call.local, call.inputs, strict=True):
            expected = expected + 1 if name == last else 0
            last = name
            if local != expected:
                raise Wrong(f"local is {local} for a row of {name!r}; expected {expected}")
            self._row(name, pos, local, token, name in call.discarded)
        for name, bound in zip(call.requests, call.bounds, strict=False):
            furthest = max(p for row, p in zip(call.rows, call.pos, strict=True) if row == name)
            if bound < furthest + 1:
                raise Wrong(f"bounds has {bound} for {name!r}, less than the {furthest + 1} tokens it sees")

    def _accepted(self, call: Apply, tokens: Mapping[str, tuple[int, ...]]) -> None:
        """A request with drafts commits its accepted drafts and one more token."""
        inputs: dict[str, list[int]] = {}
        for name, token in zip(call.rows, call.inputs, strict=True):
            inputs.setdefault(name, []).append(token)
        for name, (_, *drafts) in inputs.items():
            committed = list(tokens.get(name, ()))
            accepted = zip(committed[:-1], drafts, strict=False)
            wrong = any(draft not in (token, -1) for token, draft in accepted)  # -1: the engine did not say
            if drafts and (len(committed) > len(drafts) + 1 or wrong):
                raise Wrong(f"{name!r} commits {committed}, which does not follow from its drafts {drafts}")

    def _row(self, name: str, pos: int, local: int, token: int, discarded: bool) -> None:
        request = self.trace.requests[name]
        output = self.outputs.get(name, [])
        total = request.prompt_len + len(output)
        partial = pos + 1 < self.prefill[name]
        if partial != discarded:
            raise Wrong(f"the row of {name!r} at {pos} is discarded: {discarded}; prefill {self.prefill[name]}")
        if not partial and pos - local != total - 1:
            raise Wrong(f"{name!r} is sampled at position {pos - local}; it has {total} tokens")
        if local == 0 and request.prompt is not None:
            history = (*request.prompt, *output)
            if token != history[pos]:
                raise Wrong(f"the input of {name!r} at {pos} is {token}; its token there is {history[pos]}")
