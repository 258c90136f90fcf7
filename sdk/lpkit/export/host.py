"""The host behind every export: runs a processor's V1 interface for an engine that shows only rows and tokens."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lpkit.bridging.bridged import edited_divided
from lpkit.bridging.row_updates import RowUpdates
from lpkit.history.on_host import V1Row
from lpkit.interfaces.config import Config, make_config
from lpkit.portable.arguments import extra_args_of
from lpkit.portable.token_ids import check_ids
from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams

_FEWEST_ROWS = 8

_LONGEST = 32_768
"""Initial ``max_model_len``, by which processors may size tables; a longer text doubles it."""


class ExportHost:
    """A processor, built for an engine without batch updates and slots.

    The export keeps a :class:`V1Row` per request, and passes the rows of each step in the order of the logits. The host
    reports changes since the previous step as V1's batch updates. A different object is a different request; the same
    object is the same request with a longer ``output_ids``. :func:`follow` decides which applies.

    Args:
        cls: a class with vLLM's V1 interface: any of lpkit's bases, or a V1 class. Other classes raise TypeError.
        vocab_size: columns of the logits.
        device: of the logits.
        before_temperature: True if the engine divides by the temperature after this host. Then a processor of the
            ``"sampling"`` stage sees logits divided by ``SamplingParams.temperature``, and its edits are multiplied
            back.
        tokenizer: the processor's ``lpkit.tokenizer``.

    Attributes:
        sampling: True for a processor of the ``"sampling"`` stage.
    """

    def __init__(
        self,
        cls: type[Any],
        vocab_size: int,
        device: torch.device,
        *,
        before_temperature: bool = True,
        tokenizer: Any = None,
    ) -> None:
        check_class(cls)
        self.vocab_size, self.device = vocab_size, device
        self._cls, self._tokenizer = cls, tokenizer
        self._before_temperature = before_temperature
        self._limit, self._longest = _FEWEST_ROWS, _LONGEST
        self._busy = threading.Lock()
        self._build()

    def _build(self) -> None:
        config = make_config(
            max_num_seqs=self._limit,
            vocab_size=self.vocab_size,
            max_model_len=self._longest,
            device=self.device,
            tokenizer=self._tokenizer,
        )
        self._processor = self.construct(config)
        self.sampling = bool(self._processor.is_argmax_invariant())
        self._updates = RowUpdates()
        self._scale: torch.Tensor | None = None
        self._greedy: torch.Tensor | None = None

    def construct(self, config: Config) -> Any:
        """Make the processor, once per batch size. Override it to observe the processor."""
        return self._cls(config, self.device, False)

    def _make_room(self, rows: Sequence[V1Row]) -> None:
        """Build the processor again for a larger batch or a longer text: its tables may depend on either."""
        longest = max((len(row.prompt_ids) + len(row.output_ids) for row in rows), default=0)
        if len(rows) <= self._limit and longest < self._longest:
            return
        while self._limit < len(rows):
            self._limit *= 2
        while self._longest <= longest:
            self._longest *= 2
        self._build()

    def process(self, logits: torch.Tensor, rows: Sequence[V1Row]) -> torch.Tensor:
        """Return a step's logits, edited, in their own dtype; processors see float32.

        The processor never sees a row whose ``params`` is None. No request may have two rows. Raises RuntimeError if
        another thread is in this call.
        """
        if not self._busy.acquire(blocking=False):
            name = self._cls.__qualname__
            raise RuntimeError(f"two threads use the same exported {name} at once: export the class once per thread")
        try:
            return self._used(logits, rows)
        finally:
            self._busy.release()

    def _used(self, logits: torch.Tensor, rows: Sequence[V1Row]) -> torch.Tensor:
        used = [i for i, row in enumerate(rows) if row.params is not None]
        if len(used) == len(rows):
            return self._step(logits, rows)
        index = torch.tensor(used, dtype=torch.int64, device=logits.device)
        return logits.index_copy(0, index, self._step(logits.index_select(0, index), [rows[i] for i in used]))

    def _step(self, logits: torch.Tensor, rows: Sequence[V1Row]) -> torch.Tensor:
        self._make_room(rows)
        update = self._updates.arrange(list(rows))
        if update is not None and self.sampling:
            self._set_temperatures([row.params.temperature for row in rows])
        self._processor.update_state(update)
        edited = edited_divided(self._processor.apply, logits.to(torch.float32, copy=True), self._scale)
        if self._greedy is not None:  # vLLM ignores edits of this stage for a greedy request
            edited = torch.where(self._greedy, logits, edited)
        result: torch.Tensor = edited.to(logits.dtype)
        return result

    def _set_temperatures(self, values: Sequence[float]) -> None:
        greedy = [value < GREEDY_EPSILON for value in values]
        self._greedy = torch.tensor(greedy, device=self.device).unsqueeze(1) if any(greedy) else None
        divisors = [value if self._before_temperature and value >= GREEDY_EPSILON else 1.0 for value in values]
        used = any(value != 1.0 for value in divisors)
        self._scale = torch.tensor(divisors, dtype=torch.float32, device=self.device).unsqueeze(1) if used else None


def check_class(cls: Any) -> None:
    """Raise TypeError, with the reason, for a class that a host cannot drive."""
    if not isinstance(cls, type):
        raise TypeError(f"a class is exported, not {cls!r}; make a class of a callable with lpkit.bridge")
    if not hasattr(cls, "update_state"):
        raise TypeError(f"{cls.__qualname__} has no V1 interface, which an export needs: derive it from lpkit's bases")
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise TypeError(f"{cls.__qualname__} is abstract: it has no {missing}")


def follow(row: V1Row | None, params: SamplingParams, prompt_ids: list[int], output_ids: Sequence[int]) -> V1Row:
    """Return the row of a request that an engine shows again, or a new row.

    The result is ``row``, extended by the new token, if it is the same request with as many tokens or one more.
    Otherwise it is a new row, as for a resumed request: for a copied beam, a rejected draft, or a reused name. A V1
    engine grows by one token per step, and V1 processors may rely on it.
    """
    seen = len(row.output_ids) if row is not None else 0
    if (
        row is not None
        and row.params is params
        and len(output_ids) in (seen, seen + 1)
        and row.prompt_ids == prompt_ids
        and row.output_ids == list(output_ids[:seen])
    ):
        row.output_ids.extend(output_ids[seen:])
        return row
    return V1Row(params, list(prompt_ids), list(output_ids))


def sampling_params(
    cls: type[Any], given: Mapping[str, Any], temperature: float = 1.0, *, optional: bool = False
) -> SamplingParams:
    """Make a request with arguments for ``cls``, validated as a vLLM server would.

    Args:
        given: arguments by field name or by key.
        temperature: by which the engine will divide; 0 is greedy. Other engines have no limit.
        optional: True to accept requests without the required arguments, which do not use the processor.

    Raises:
        TypeError: the class cannot run outside vLLM.
        ValueError: an argument is wrong; the message names it and the broken rule.
    """
    check_class(cls)
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be finite and not negative, not {temperature}")
    params = SamplingParams(temperature=float(temperature > 0), extra_args=extra_args_of(cls, given) or None)
    validate = getattr(cls, "validate_params", None)
    if validate is not None:
        validate(params)
    declared = getattr(cls, "Params", None)
    if not optional and declared is not None and declared.parse(params.extra_args) is None:
        needed = [name for name, field in declared.model_fields.items() if field.is_required()]
        raise ValueError(f"{cls.__qualname__} needs {', '.join(needed)}")
    params.temperature = temperature  # set later, because vLLM raises small values and refuses values above 2
    return params


def check_vocabulary(cls: type[Any], params: SamplingParams, vocab_size: int) -> None:
    """Raise ValueError if a request's token id lies outside the model's vocabulary; names the key and the id."""
    declared = getattr(cls, "Params", None)
    if declared is None:
        return
    parsed = declared.parse(params.extra_args)
    if parsed is None:
        return
    for key, name in declared.keys().items():
        if name in declared.token_id_fields():
            check_ids(f"{cls.__qualname__}: {key}", getattr(parsed, name), vocab_size)
