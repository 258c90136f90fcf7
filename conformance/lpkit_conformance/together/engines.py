"""Runs a pair's program in an engine of :mod:`lpkit.runtime`, and keeps what each of the two did to every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from lpkit.runtime import Engine, StepRow, V1Engine, V2Engine, V2Slots
from lpkit.runtime.sampler.options import is_greedy
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.hosts.requests import ActiveRequest
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Step, Swap
from lpkit_conformance.subject.calls import PluginError, calling, checked
from lpkit_conformance.together.pair import Pair
from lpkit_conformance.vllm_api.runners import V1

Edit = tuple[torch.Tensor, torch.Tensor]
"""The logits of a step before and after a processor."""


class RaisedBeside(Exception):
    """A plugin of the pair raised, or returned something other than a batch of logits.

    Attributes:
        which: index of the plugin.
        error: the plugin's error.
    """

    def __init__(self, which: int, error: PluginError) -> None:
        super().__init__(str(error))
        self.which, self.error = which, error


class Spied:
    """A processor that keeps what it does, as the engine knows it.

    Attributes:
        edits: of each ``apply``.
        answers: of each ``add_request``.
        claim: what it answers when V1 asks if it keeps the argmax.
        reads: the keys of ``extra_args`` that it has looked at.
    """

    def __init__(self, which: int, make: Callable[[], Any], v1: bool, looked_at: set[str]) -> None:
        self.which = which
        self.edits: list[Edit] = []
        self.answers: list[bool] = []
        self.reads: set[str] = set()
        self.claim = False
        self._looked_at = looked_at
        try:
            with calling("__init__"):
                self._processor = make()
            if v1:
                with calling("is_argmax_invariant"):
                    self.claim = bool(self._processor.is_argmax_invariant())
        except PluginError as error:
            raise RaisedBeside(which, error) from error

    def is_argmax_invariant(self) -> bool:
        return self.claim

    def update_state(self, update: Any) -> None:
        self._call("update_state", update)

    def add_request(self, slot: int, params: SamplingParams) -> bool:
        self.answers.append(bool(self._call("add_request", slot, params)))
        return self.answers[-1]

    def apply_staged_writes(self) -> None:
        self._call("apply_staged_writes")

    def apply(self, logits: torch.Tensor, *context: Any) -> torch.Tensor:
        before = logits.clone()
        after = self._call("apply", logits, *context)
        try:
            after = checked(after, before)
        except PluginError as error:
            raise RaisedBeside(self.which, error) from error
        self.edits.append((before, after.clone()))
        return after  # the tensor itself: what the plugin keeps of it, the next one edits

    def _call(self, method: str, *args: Any) -> Any:
        self._looked_at.clear()
        try:
            with calling(method, as_engine=True):
                return getattr(self._processor, method)(*args)
        except PluginError as error:
            raise RaisedBeside(self.which, error) from error
        finally:
            self.reads |= self._looked_at


class Recorded:
    """A processor's results without the processor: what :class:`Spied` kept, step by step.

    Args:
        spied: which kept it.
        edits: whether its edits are made; else it leaves the logits as they are.
    """

    def __init__(self, spied: Spied, edits: bool = True) -> None:
        self.which, self.claim, self.reads = spied.which, spied.claim, spied.reads
        self.edits: list[Edit] = []
        self._spied, self._edits = spied, edits
        self._answered = 0

    def is_argmax_invariant(self) -> bool:
        return self.claim

    def update_state(self, update: Any) -> None:
        pass

    def add_request(self, slot: int, params: SamplingParams) -> bool:
        self._answered += 1
        return self._spied.answers[self._answered - 1]

    def apply_staged_writes(self) -> None:
        pass

    def apply(self, logits: torch.Tensor, *context: Any) -> torch.Tensor:
        before = logits.clone()
        if self._edits:
            logits.copy_(self._spied.edits[len(self.edits)][1])
        self.edits.append((before, logits.clone()))
        return logits


Processor = Spied | Recorded

Make = Callable[[int, tuple[Any, ...], set[str]], Processor]
"""A plugin by its index, from its constructor's arguments; the set gets what is read of a request's ``extra_args``."""


@dataclass(frozen=True)
class Moment:
    """One forward pass.

    Attributes:
        rows: of its logits.
        edits: each plugin's edit of them, by its index; a missing index: its ``apply`` was not called.
        raw: the model's logits.
        processed: the logits from which tokens were chosen.
        tokens: that requests gained.
    """

    step: int
    rows: tuple[StepRow, ...]
    edits: dict[int, Edit]
    raw: torch.Tensor
    processed: torch.Tensor
    tokens: dict[str, list[int]]


@dataclass
class Run:
    """A program, carried out.

    Attributes:
        order: in which the plugins were loaded.
        moments: its forward passes.
        requests: by name.
        processors: by the plugin's index.
        failure: what ended it early.
    """

    order: tuple[int, ...]
    moments: list[Moment] = field(default_factory=list)
    requests: dict[str, ActiveRequest] = field(default_factory=dict)
    processors: dict[int, Processor] = field(default_factory=dict)
    failure: RaisedBeside | None = None

    @property
    def sequence(self) -> tuple[int, ...]:
        """Order in which the engine applies the plugins: V1 applies those that claim argmax invariance later."""
        return tuple(sorted(self.order, key=lambda which: self.processors[which].claim))

    @property
    def tokens(self) -> dict[str, list[int]]:
        """Tokens that each request gained, in order."""
        found: dict[str, list[int]] = {}
        for moment in self.moments:
            for name, tokens in moment.tokens.items():
                found.setdefault(name, []).extend(tokens)
        return found

    def late(self, which: int, request: str) -> bool:
        """Return True if a plugin's edit of a request is discarded because it follows the greedy choice."""
        return self.processors[which].claim and is_greedy(self.requests[request].request.params)


class PairModel:
    """The model of a pair, for an engine."""

    def __init__(self, pair: Pair, requests: Mapping[str, ActiveRequest]) -> None:
        self._pair, self._requests = pair, requests
        self.vocab_size, self.device, self.seed = pair.vocab_size, pair.device, 0

    def rows(self, keys: Sequence[tuple[str, int]]) -> torch.Tensor:
        """As :meth:`lpkit.runtime.LogitsSource.rows`."""
        if not keys:
            return torch.empty(0, self.vocab_size, device=self.device)
        return self._pair.rows([self._requests[name] for name, _ in keys], [position for _, position in keys])


def spied(pair: Pair) -> Make:
    """Makes both plugins themselves."""
    return lambda which, args, looked_at: _spied(pair, which, args, looked_at)


def replaced(pair: Pair, run: Run, kept: int, *, edits: bool = True) -> Make:
    """Create one plugin, and a replay of the other's recorded results; without ``edits`` a plugin that does nothing."""

    def make(which: int, args: tuple[Any, ...], looked_at: set[str]) -> Processor:
        if which == kept:
            return _spied(pair, which, args, looked_at)
        other = run.processors[which]
        assert isinstance(other, Spied)
        return Recorded(other, edits)

    return make


def _spied(pair: Pair, which: int, args: tuple[Any, ...], looked_at: set[str]) -> Spied:
    return Spied(which, lambda: pair.plugins[which].cls(*args), pair.host == V1, looked_at)


def carry_out(
    pair: Pair,
    order: tuple[int, ...],
    ops: Iterable[Op],
    make: Make,
    force: Mapping[str, Sequence[int]] | None = None,
) -> Run:
    """Run a program.

    Args:
        pair: the plugins and their requests.
        order: indexes of the plugins, in which they are loaded.
        ops: the program.
        make: makes the plugins.
        force: what requests gain instead of what is sampled.

    Returns:
        The run, as far as it came.
    """
    run = Run(order)
    try:
        _carry_out(pair, run, ops, make, force or {})
    except RaisedBeside as failure:
        run.failure = failure
    return run


def _carry_out(pair: Pair, run: Run, ops: Iterable[Op], make: Make, force: Mapping[str, Sequence[int]]) -> None:
    looked_at: set[str] = set()
    engine = _engine(pair, run, make, looked_at)
    chunks: dict[str, int] = {}
    gained: dict[str, int] = {}
    step = 0
    for op in ops:
        if isinstance(op, Arrive):
            active = pair.request(op, looked_at)
            run.requests[op.request], chunks[op.request] = active, active.chunks
            engine.add(active.request)
        elif isinstance(op, Finish):
            engine.finish(op.request)
        elif isinstance(op, Preempt):
            engine.preempt(op.request)
        elif isinstance(op, Resume):
            engine.resume(op.request, new_list=op.new_list)
        elif isinstance(op, Swap):
            engine.swap(op.first, op.second)
        elif isinstance(op, Idle):
            engine.step(idle=True)
        elif isinstance(op, Step):
            for _ in range(op.count):
                step += 1
                wanted = {
                    name: ids[gained.get(name, 0)] for name, ids in force.items() if gained.get(name, 0) < len(ids)
                }
                partial = {name: 1 for name, left in chunks.items() if left and name in engine.requests}
                chunks = {name: max(left - 1, 0) for name, left in chunks.items()}
                before = {which: len(processor.edits) for which, processor in run.processors.items()}
                found = engine.step(force=wanted, partial=partial)
                for name, tokens in found.tokens.items():
                    gained[name] = gained.get(name, 0) + len(tokens)
                if found.raw is None or found.processed is None:
                    continue
                edits = {
                    which: processor.edits[before[which]]
                    for which, processor in run.processors.items()
                    if len(processor.edits) > before[which]
                }
                run.moments.append(
                    Moment(step, found.rows, edits, found.raw, found.processed.clone(), dict(found.tokens))
                )


def _engine(pair: Pair, run: Run, make: Make, looked_at: set[str]) -> Engine:
    """An engine that has loaded the plugins in the run's order."""
    model: Any = PairModel(pair, run.requests)
    options: dict[str, Any] = {
        "max_num_seqs": pair.max_num_seqs,
        "max_model_len": pair.max_model_len,
        "device": pair.device,
        "thinking": pair.markers,
    }
    config = pair.config()
    v1 = pair.host == V1
    slots = V2Slots(pair.max_num_seqs, pair.max_model_len, pair.device, vocab_size=pair.vocab_size)
    args = (config, pair.device, False) if v1 else (config, slots.state)
    run.processors = {which: make(which, args, looked_at) for which in run.order}
    processors: list[Any] = list(run.processors.values())
    return V1Engine(processors, model, **options) if v1 else V2Engine(processors, model, slots=slots, **options)
