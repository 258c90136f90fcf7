"""The host behind every export: drives a processor's V1 face for an engine that only shows rows and their tokens."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from lpkit.bridging.row_updates import RowUpdates
from lpkit.history.on_host import V1Row
from lpkit.interfaces.config import Config, DeviceConfig, ModelConfig, SchedulerConfig
from lpkit.portable.admission import check_ids
from lpkit.portable.arguments import extra_args_of
from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams

_FEWEST_ROWS = 8

_LONGEST = 32_768
"""The ``max_model_len`` that processors are told at first, which may size tables by it: a longer text doubles it."""


class ExportHost:
    """One processor, built for an engine that knows neither batch updates nor slots.

    The engine's face keeps a :class:`V1Row` per request and gives the rows of each step in the order of the logits.
    What changed since the step before reaches the processor as V1's batch updates: another object is another request,
    the same object is the same one with a longer ``output_ids``. :func:`follow` decides which it is.

    Args:
        cls: a class that has vLLM's V1 interface: any of lpkit's bases, or a V1 class.
        vocab_size: columns of the logits.
        device: of the logits.
        before_temperature: whether the engine divides by the temperature after this. A processor of the ``"sampling"``
            stage then sees logits that are divided by ``SamplingParams.temperature``; its edits are multiplied back.
        tokenizer: what ``lpkit.tokenizer`` gives the processor.

    Attributes:
        vocab_size: see above.
        device: see above.
        sampling: whether the processor is of the ``"sampling"`` stage.

    Raises:
        TypeError: the class has no V1 interface.
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
        self._build()

    def _build(self) -> None:
        config = configuration(self.vocab_size, self.device, self._limit, self._longest, self._tokenizer)
        self._processor = self.construct(config)
        self.sampling = bool(self._processor.is_argmax_invariant())
        self._updates = RowUpdates()
        self._scale: torch.Tensor | None = None
        self._greedy: torch.Tensor | None = None

    def construct(self, config: Config) -> Any:
        """The processor, once for each size of the batch; what drives it may want to watch it."""
        return self._cls(config, self.device, False)

    def _make_room(self, rows: Sequence[V1Row]) -> None:
        """Build the processor again for a larger batch or a longer text: its tables may be sized by either."""
        longest = max((len(row.prompt_ids) + len(row.output_ids) for row in rows), default=0)
        if len(rows) <= self._limit and longest < self._longest:
            return
        while self._limit < len(rows):
            self._limit *= 2
        while self._longest <= longest:
            self._longest *= 2
        self._build()

    def process(self, logits: torch.Tensor, rows: Sequence[V1Row]) -> torch.Tensor:
        """Edit a step's logits.

        Args:
            logits: ``[len(rows), vocab]``, of any floating dtype; processors see float32. Not changed.
            rows: the requests, each object once; one whose ``params`` is None does not use the processor, which never
                sees it.

        Returns:
            Logits of the same shape and dtype.
        """
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
        before = logits.to(torch.float32)
        if self._scale is None:
            edited = self._processor.apply(before.clone() if before is logits else before)
        else:
            seen = before / self._scale
            edited = self._processor.apply(seen.clone())
            # What was not changed goes back exactly as it came: x / t * t is not always x.
            edited = torch.where(edited == seen, before, edited * self._scale)
        if self._greedy is not None:  # vLLM drops what a processor of this stage does to a greedy request
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
    """Whether a host can drive ``cls``.

    Raises:
        TypeError: it cannot; the message says why.
    """
    if not isinstance(cls, type):
        raise TypeError(f"a class is exported, not {cls!r}; make one of a callable with lpkit.bridge")
    if not hasattr(cls, "update_state"):
        raise TypeError(f"{cls.__qualname__} has no V1 interface, which other engines drive: derive it from lpkit's")
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise TypeError(f"{cls.__qualname__} is abstract: it has no {missing}")


def follow(row: V1Row | None, params: SamplingParams, prompt_ids: list[int], output_ids: Sequence[int]) -> V1Row:
    """The row of a request that an engine shows again, or a new one.

    Args:
        row: what the engine showed in this place, or under this name, in the step before; None: nothing.
        params: of the request.
        prompt_ids: of the request.
        output_ids: its tokens so far.

    Returns:
        ``row``, with what is new in ``output_ids``, if it is the same request with as many tokens or one more; else
        another row, as for a request that resumes: a copied beam, a draft that was rejected, a name that is used again.
        A V1 engine grows by one token per step, and V1 processors may count on it.
    """
    known = len(row.output_ids) if row is not None else 0
    if (
        row is not None
        and row.params is params
        and len(output_ids) in (known, known + 1)
        and row.prompt_ids == prompt_ids
        and row.output_ids == list(output_ids[:known])
    ):
        row.output_ids.extend(output_ids[known:])
        return row
    return V1Row(params, list(prompt_ids), list(output_ids))


def sampling_params(
    cls: type[Any], given: Mapping[str, Any], temperature: float = 1.0, *, optional: bool = False
) -> SamplingParams:
    """A request that gives ``cls`` its arguments, validated as a vLLM server would.

    Args:
        cls: a processor's class.
        given: arguments by field name or by key.
        temperature: that the engine will divide by; 0 is greedy. Other engines know no limit.
        optional: whether a request may give none of the required arguments, as one that does not use the processor.

    Raises:
        TypeError: the class cannot run outside vLLM.
        ValueError: naming the argument and the rule that it breaks.
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
    params.temperature = temperature  # past vLLM's limits, which raise what is small and refuse what is above 2
    return params


def check_vocabulary(cls: type[Any], params: SamplingParams, vocab_size: int) -> None:
    """Compare the token ids that a request names with the model's vocabulary.

    Args:
        cls: a processor's class.
        params: of the request.
        vocab_size: columns of the logits.

    Raises:
        ValueError: naming the key and the token id.
    """
    declared = getattr(cls, "Params", None)
    if declared is None:
        return
    parsed = declared.parse(params.extra_args)
    if parsed is None:
        return
    for key, name in declared.keys().items():
        if name in declared.token_id_fields():
            check_ids(f"{cls.__qualname__}: {key}", getattr(parsed, name), vocab_size)


def configuration(
    vocab_size: int, device: torch.device, rows: int, longest: int = _LONGEST, tokenizer: Any = None
) -> Config:
    """What a processor's constructor gets as ``vllm_config``.

    Args:
        vocab_size: columns of the logits.
        device: of the logits.
        rows: requests in the batch at most.
        longest: ``max_model_len``.
        tokenizer: what ``lpkit.tokenizer`` gives the processor: ``model_config.lpkit_tokenizer``.
    """
    model = ModelConfig(longest, vocab_size, SimpleNamespace(vocab_size=vocab_size, eos_token_id=None))
    if tokenizer is not None:
        model.lpkit_tokenizer = tokenizer
        model.skip_tokenizer_init = False
        model.hf_config.eos_token_id = getattr(tokenizer, "eos_token_id", None)
    return Config(
        SchedulerConfig(rows, max_num_batched_tokens=rows, async_scheduling=False), model, DeviceConfig(device)
    )
