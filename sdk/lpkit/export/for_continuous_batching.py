"""Continuous batching of transformers, where a processor sees only the current token of each request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import TemperatureLogitsWarper
from transformers.generation.continuous_batching.cb_logits_processors import (
    ContinuousBatchingLogitsProcessor,
    ContinuousBatchingLogitsProcessorList,
    ContinuousBatchingTemperatureLogitsWarper,
)
from transformers.generation.logits_process import LogitsProcessorList

from lpkit.export.host import ExportHost, check_class, check_vocabulary, sampling_params
from lpkit.history.on_host import V1Row
from lpkit.sampling_params import SamplingParams

_REMEMBERED = 1024
"""Least number of remembered arguments. Arguments of the last few steps are always kept, however large the batch is."""

_TEMPERATURES = (TemperatureLogitsWarper, ContinuousBatchingTemperatureLogitsWarper)


class ContinuousProcessor(ContinuousBatchingLogitsProcessor):
    """A processor without history in a manager; :func:`lpkit.export.continuous_batching` makes it.

    A request's arguments travel as a number in the tensor that the manager keeps for each processor. Without a history,
    equal arguments make equal rows, so the processor need not know the requests.
    """

    ignored_kwargs = ()

    def __init__(
        self,
        cls: type[Any],
        default: Mapping[str, Any] | None,
        sampled: bool,
        vocab_size: int,
        device: torch.device,
        tokenizer: Any = None,
    ) -> None:
        self._cls, self._temperature = cls, 1.0 if sampled else 0.0
        params = getattr(cls, "Params", None)
        self.supported_kwargs = dict.fromkeys(params.keys() if params else getattr(cls, "keys", ()), object)
        self._host = ExportHost(cls, vocab_size, device, before_temperature=False, tokenizer=tokenizer)
        self._default = None if default is None else self._checked(default)
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._rows: dict[int, list[V1Row]] = {}
        self._params: dict[int, SamplingParams] = {} if self._default is None else {0: self._default}
        self._last = 0

    @property
    def sampling(self) -> bool:
        """True for a processor of the ``"sampling"`` stage."""
        return self._host.sampling

    def _checked(self, given: Mapping[str, Any]) -> SamplingParams:
        params = sampling_params(self._cls, given, self._temperature, optional=True)
        check_vocabulary(self._cls, params, self._host.vocab_size)
        return params

    def _supported(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in kwargs.items() if key in self.supported_kwargs}

    def check(self, kwargs: Mapping[str, Any]) -> None:
        """Check the arguments of ``manager.add_request``, before the request enters the batch. Raises ValueError."""
        arguments = self._supported(kwargs)
        if arguments:
            self._checked(arguments)

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        """Give requests the default arguments until they send others."""
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: Sequence[Any]) -> torch.Tensor:
        """Return the number of each request's arguments, in the order of the rows, as int32."""
        arguments = [self._supported(request.state.logit_processor_kwargs) for request in requests_with_new_token]
        numbers = [self._number(kwargs) if kwargs else 0 for kwargs in arguments]
        while len(self._numbers) > max(_REMEMBERED, 4 * len(numbers)):
            _, oldest = self._numbers.popitem(last=False)
            self._rows.pop(oldest, None)
            del self._params[oldest]
        return torch.tensor(numbers, dtype=torch.int32)

    def _number(self, kwargs: dict[str, Any]) -> int:
        key = repr(sorted(kwargs.items()))
        if key not in self._numbers:
            self._last += 1
            self._numbers[key] = self._last
            self._params[self._last] = sampling_params(self._cls, kwargs, self._temperature, optional=True)
        self._numbers.move_to_end(key)
        return self._numbers[key]

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        """Edit ``[rows, vocab]`` scores; ``tensor_arg`` is the result of :meth:`prepare_tensor_args` for these rows."""
        taken: dict[int, int] = {}
        rows = []
        for number in tensor_arg[: scores.shape[0]].tolist():
            pool = self._rows.setdefault(number, [])
            index = taken.get(number, 0)
            taken[number] = index + 1
            if index == len(pool):
                pool.append(V1Row(self._params.get(number), [], []))
            rows.append(pool[index])
        return self._host.process(scores, rows)


class _WithExports(ContinuousBatchingLogitsProcessorList):
    """A manager's processors including lpkit's. A request with wrong arguments fails alone, with the reason."""

    def __init__(self, processors: Sequence[Any]) -> None:
        super().__init__(LogitsProcessorList(processors), drop_unsupported_processors=False)
        with_tensors = [item for item in processors if isinstance(item, ContinuousBatchingLogitsProcessor)]
        self.tensors_required = len(with_tensors)

    def check_kwargs(self, kwargs: dict[str, Any]) -> None:
        super().check_kwargs(kwargs)
        for item in self.logits_processor:
            if isinstance(item, ContinuousProcessor):
                item.check(kwargs)


def join(manager: Any, cls: type[Any], default: Mapping[str, Any] | None, tokenizer: Any = None) -> None:
    """Put a processor into a manager that has not started; see :func:`lpkit.export.continuous_batching`."""
    name = getattr(cls, "__qualname__", repr(cls))
    check_class(cls)
    history = getattr(cls, "history", None)
    if history != "none":
        what = "reads the history of its requests" if history else "does not say what history it reads"
        raise TypeError(
            f"{name} {what}, and continuous batching of transformers shows processors the current token only: "
            "use generate, or declare history = 'none' if it reads none"
        )
    config = manager.continuous_batching_config
    if any(config.cuda_graph_booleans) or config.varlen_compile_config or config.decode_compile_config:
        raise ValueError(
            f"{name} chooses rows on the host, which a captured or compiled graph cannot: give the manager a "
            "ContinuousBatchingConfig(use_cuda_graph=False) without compile configurations"
        )
    if manager.batch_processor is not None or manager.is_running():
        raise RuntimeError(f"{name} came too late: processors join before manager.start()")
    model = manager.model
    vocab_size = model.config.get_text_config().vocab_size
    sampled = bool(manager.generation_config.do_sample)
    made = ContinuousProcessor(cls, default, sampled, vocab_size, model.device, tokenizer)
    present = list(manager.logit_processor.logits_processor)
    temperatures = [i for i, item in enumerate(present) if isinstance(item, _TEMPERATURES)]
    at = temperatures[-1] + 1 if made.sampling and temperatures else 0
    while at < len(present) and isinstance(present[at], ContinuousProcessor) and present[at].sampling == made.sampling:
        at += 1  # in the order of the calls
    present.insert(at, made)
    manager.logit_processor = _WithExports(present)
