"""Runs one request in lpkit's runtime, with some of its processors, and looks at the logits between the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from lpkit.runtime import LogitsSource, Request
from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams

from lpkit_conformance.activity.declined import watched
from lpkit_conformance.explanation.steps import MODEL, likeliest, stage_view
from lpkit_conformance.hosts import parts_of
from lpkit_conformance.results import StepView
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.show.model import LanguageModel
from lpkit_conformance.subject.calls import calling, checked

SHOWN = 8
"""Number of the most likely tokens of a step that are shown, of the model and of the final distribution."""

SAMPLING = "the request is greedy, and the processor belongs to the sampling stage"
DECLINED = "it declined the request at admission"

Seen = list[tuple[Any, torch.Tensor]]
"""Stages and the logits ``[1, vocab]`` after them."""


class Processor(NamedTuple):
    """A processor of the request.

    Attributes:
        name: for people.
        make: its class.
        edit: returns the parameters that it gets, from the request's parameters.
        note: why it gets no request; empty if it gets the request.
    """

    name: str
    make: Callable[..., Any]
    edit: Callable[[SamplingParams], SamplingParams] = lambda params: params
    note: str = ""


class Part:
    """A processor in an engine. Its exceptions become a ``PluginError``, and a call that hangs can be named.

    Args:
        number: its index among the processors.
        args: of the class's constructor.

    Attributes:
        note: why it leaves the request to itself; empty if it does not, as far as is known.
    """

    def __init__(self, number: int, processor: Processor, args: Any) -> None:
        self.number, self.note, self.claims = number, processor.note, False
        self.name, self._edit = processor.name, processor.edit
        with self._calling("__init__", as_engine=False):
            self._made = processor.make(*args)
        self._admit: Any = getattr(self._made, "admit", None)
        if callable(self._admit):
            self._made.admit = self._asked_to_admit

    def is_argmax_invariant(self) -> bool:
        with self._calling("is_argmax_invariant", as_engine=False):
            self.claims = bool(self._made.is_argmax_invariant())
        return self.claims

    def update_state(self, update: Any) -> None:
        if update is None or not update.added:
            with self._calling("update_state"):
                self._made.update_state(update)
            return
        added = [(row, self._edit(params), *lists) for row, params, *lists in update.added]
        with self._admitting(), self._calling("update_state"):
            self._made.update_state(type(update)(update.batch_size, update.removed, added, update.moved))

    def add_request(self, slot: int, params: SamplingParams) -> bool:
        with self._admitting(), self._calling("add_request"):
            admitted = bool(self._made.add_request(slot, self._edit(params)))
        if not admitted:
            self.note = self.note or DECLINED
        return admitted

    @property
    def samples(self) -> bool:
        """True if the engine or the SDK skips it for greedy requests."""
        return self.claims or getattr(self._made, "stage", "") == "sampling"

    def apply_staged_writes(self) -> None:
        with self._calling("apply_staged_writes"):
            self._made.apply_staged_writes()

    def apply(self, logits: torch.Tensor, *context: Any) -> torch.Tensor:
        with self._calling("apply"):
            return checked(self._made.apply(logits, *context), logits)

    def _calling(self, method: str, as_engine: bool = True) -> calling:
        return calling(f"{self.name}.{method}", as_engine)

    def _asked_to_admit(self, request: Any) -> Any:
        answer = self._admit(request)
        self.note = "" if answer else DECLINED
        return answer

    @contextmanager
    def _admitting(self) -> Iterator[None]:
        """Note why a request of the SDK's classes is declined: they admit only requests with their arguments."""
        if callable(self._admit):
            self.note = self.note or "the request does not give its arguments"
        with watched(anyones=True) as errors:
            yield
        for error in errors:
            self.note = f"{DECLINED}: {type(error).__name__}: {error}"[:300]


class _Source(LogitsSource):
    """The language model in place of the runtime's: its logits depend on the tokens."""

    def __init__(self, model: LanguageModel, request: Request) -> None:
        self.vocab_size, self.device, self.seed = model.vocab_size, torch.device("cpu"), 0
        self._model, self._request = model, request

    def rows(self, keys: Sequence[tuple[int | str, int]]) -> torch.Tensor:
        return torch.stack(
            [self._model.logits([self._request.token_at(n) for n in range(at + 1)]) for _, at in keys]
        ).clone()


class ShownRequest(NamedTuple):
    """A request, and all that serves it.

    Attributes:
        model: what it speaks.
        case: the request's SamplingParams.
        processors: in the order of loading.
    """

    host: str
    model: LanguageModel
    case: Case
    prompt: Sequence[int]
    processors: Sequence[Processor]

    @property
    def greedy(self) -> bool:
        """True if no random number chooses its tokens."""
        return self.case.params().temperature < GREEDY_EPSILON

    @property
    def most_steps(self) -> int:
        """Tokens of the reply at most."""
        return self.case.params().max_tokens or 16

    @property
    def room(self) -> int:
        """Tokens that an engine must hold for this request."""
        return len(self.prompt) + self.most_steps + 1


class Playing:
    """A request in an engine of its own, with the processors of these indexes."""

    def __init__(self, shown: ShownRequest, chosen: Iterable[int]) -> None:
        self._request = Request("shown", shown.case.params(), list(shown.prompt), 2**30)
        self.seen: Seen = []

        def factory(number: int) -> Callable[..., Part]:
            return lambda *args: Part(number, shown.processors[number], args)

        self.engine = parts_of(shown.host).engine(
            [factory(number) for number in chosen],
            _Source(shown.model, self._request),
            max_num_seqs=1,
            max_model_len=shown.room,
            thinking=shown.model.thinking,
            tokenizer=shown.model.tokenizer,
            hf_config={"eos_token_id": min(shown.model.eos, default=None), **shown.model.hf_config},
        )
        self.parts: list[Part] = self.engine.processors
        self.engine.sampler.observer = lambda stage, logits: self.seen.append((stage, logits.clone()))  # type: ignore[attr-defined]
        self.engine.add(self._request)

    def step(self, force: int | None = None) -> tuple[int, torch.Tensor]:
        """Add a token to the reply; return the token that was chosen, and the model's logits ``[1, vocab]``.

        Args:
            force: the token that is added in place of the chosen one.
        """
        self.seen = []
        result = self.engine.step(force=None if force is None else {self._request.request_id: force})
        assert result.sampled is not None and result.raw is not None
        return int(result.sampled[0]), result.raw


class Lockstep:
    """A request with all processors, without each of them, and without any.

    Attributes:
        plain: the reply without processors.
    """

    def __init__(self, shown: ShownRequest) -> None:
        self._shown, params = shown, shown.case.params()
        self._stops = {*params.all_stop_token_ids, *(() if params.ignore_eos else shown.model.eos)}
        alone = Playing(shown, ())
        self.plain: list[int] = []
        while len(self.plain) < shown.most_steps and not self._stops.intersection(self.plain[-1:]):
            self.plain.append(alone.step()[0])
        every = range(len(shown.processors))
        self._full, self._plain = Playing(shown, every), Playing(shown, ())
        # Without the only processor, the run is `_plain`.
        others = every if len(every) > 1 else ()
        self._without = [Playing(shown, (n for n in every if n != left_out)) for left_out in others]

    def steps(self) -> Iterator[StepView]:
        """Yield the steps of the reply."""
        for _ in range(self._shown.most_steps):
            token, raw = self._full.step()
            plain, _ = self._plain.step(token)
            without = [run.step(token)[0] for run in self._without] or [plain]
            before = (self._plain.seen or [(MODEL, raw)])[-1][1][0]
            yield step_view(self._shown.model, token, plain, without, [(MODEL, raw), *self._full.seen], before)
            if token in self._stops:
                return

    def notes(self) -> tuple[str, ...]:
        """Return for each processor why it leaves the request to itself; empty where it does not."""
        return notes_of(self._full.parts, self._shown.greedy)


def notes_of(parts: Iterable[Part], greedy: bool) -> tuple[str, ...]:
    """Return for each processor why it leaves the request to itself; empty where it does not."""
    return tuple(SAMPLING if greedy and part.samples else part.note for part in parts)


def step_view(
    model: LanguageModel, token: int, plain: int, without: Sequence[int], stages: Seen, before: torch.Tensor
) -> StepView:
    """Return a step as data.

    Args:
        model: of the tokens.
        token, plain, without: as in :class:`.results.StepView`.
        stages: the model and all that was seen after it.
        before: the final logits ``[vocab]`` without processors.
    """
    raw, final = stages[0][1][0], stages[-1][1][0]
    top = likeliest(raw, SHOWN) + likeliest(final, SHOWN)
    ids = list(dict.fromkeys([token, plain, *without, *top]))
    views, last = [], raw
    for stage, logits in stages:
        if isinstance(stage, Part) or stage == MODEL or not torch.equal(logits[0], last):
            number, name = (stage.number, stage.name) if isinstance(stage, Part) else (None, stage)
            views.append(stage_view(name, number, last, logits[0], ids, model.text))
            last = logits[0]
    return StepView(
        model.text(token),
        model.text(plain),
        tuple(map(model.text, without)),
        tuple(map(model.text, ids)),
        tuple(views),
        forced=bool(before[token].isneginf()),
        prevented=bool(final[plain].isneginf()),
    )
