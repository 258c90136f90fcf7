"""SGLang's requests as rows for a processor, with tokens added where the engine's records lag behind."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch

from lpkit.export.host import ExportHost, check_class, check_vocabulary
from lpkit.history.on_host import V1Row
from lpkit.sampling_params import SamplingParams

_log = logging.getLogger(__name__)

REQUEST = "__req__"
"""Key under which a request's ``custom_params`` hold the request itself; SGLang's own name."""

_ROWS = "lpkit_rows"
"""Attribute of SGLang's request that holds its rows, so that they end with the request."""


class ForwardRows:
    """Facts about the rows of one forward pass of SGLang.

    With overlap scheduling, the engine samples before it has read the tokens of the previous step: the last token
    exists only as an input on the device.
    """

    def __init__(self, forward_batch: Any) -> None:
        self._batch = forward_batch
        lengths = forward_batch.seq_lens_cpu
        lengths = forward_batch.seq_lens if lengths is None else lengths
        self._rows = {rid: (i, n) for i, (rid, n) in enumerate(zip(forward_batch.rids, lengths.tolist(), strict=False))}

    def missing(self, request: Any, on_host: int) -> int:
        """Return the number of a request's tokens beyond ``on_host``; negative while its prompt is unfinished."""
        numbers = self._rows.get(request.rid)
        return 0 if numbers is None else int(numbers[1]) - on_host

    def last_tokens(self, requests: Sequence[Any]) -> list[int]:
        """Return the newest token of each request, in one copy from the device."""
        rows = [self._rows[request.rid][0] for request in requests]
        if not self._batch.forward_mode.is_decode():
            ends = list(accumulate(self._batch.extend_seq_lens_cpu))
            rows = [ends[row] - 1 for row in rows]
        ids = self._batch.input_ids
        tokens: list[int] = ids[torch.tensor(rows, dtype=torch.int64, device=ids.device)].tolist()
        return tokens


class ServedProcessor:
    """A processor's class in a worker of SGLang.

    Args:
        tokenizer: for processors with word parameters: a tokenizer, or a function that makes it.
    """

    def __init__(self, cls: type[Any], tokenizer: Any = None) -> None:
        check_class(cls)
        self.cls, self._tokenizer = cls, tokenizer
        self._host: ExportHost | None = None
        self._reads_tokens = getattr(cls, "history", "tokens") == "tokens"
        declared = getattr(cls, "Params", None)
        self._keys = frozenset(getattr(cls, "keys", ()) if declared is None else declared.keys())
        self._any_request = not self._keys or (declared is not None and declared.parse(None) is not None)
        self._logged: set[str] = set()

    def is_named_by(self, custom_params: Mapping[str, Any] | None) -> bool:
        """True if a request's ``custom_params`` hold an argument of this processor."""
        return not self._keys.isdisjoint(custom_params or ())

    def takes(self, custom_params: Mapping[str, Any] | None) -> bool:
        """True if the processor may act on a request with these ``custom_params``."""
        return self._any_request or self.is_named_by(custom_params)

    def admit(self, custom_params: Mapping[str, Any] | None, vocab_size: int) -> None:
        """Check a request's arguments. Raises ValueError if one is wrong: the message names it and the broken rule."""
        self._checked(SamplingParams(extra_args=_arguments(custom_params)), vocab_size)

    def _checked(self, params: SamplingParams, vocab_size: int) -> SamplingParams:
        validate = getattr(self.cls, "validate_params", None)
        if validate is not None:
            validate(params)
        check_vocabulary(self.cls, params, vocab_size)
        return params

    def process(self, logits: torch.Tensor, requests: Sequence[Any], step: ForwardRows | None) -> torch.Tensor:
        """Return the logits, with the rows of requests edited that use this processor.

        Args:
            requests: SGLang's objects, with ``custom_params`` in their sampling parameters.
            step: the forward pass; None: the ``output_ids`` are complete.
        """
        if len({request.rid for request in requests}) < len(requests):
            self._tell("speculative rows show no draft tokens; they are not processed")
            return logits
        chosen, lagging = [], []
        for index, request in enumerate(requests):
            row = self._row(request, logits.shape[1])
            missing = step.missing(request, len(request.origin_input_ids) + len(request.output_ids)) if step else 0
            if row is None or missing < 0:
                continue  # the engine discards samples before the end of a prompt
            if missing > 1:
                self._tell(f"{missing} tokens of a request are not on the host; it is not processed")
                continue
            if missing and self._reads_tokens:
                lagging.append(request)
            chosen.append((index, request, missing))
        if not chosen:
            return logits
        tokens = step.last_tokens(lagging) if step and lagging else []
        newest = {request.rid: [token] for request, token in zip(lagging, tokens, strict=True)}
        rows = [self._grown(request, newest.get(request.rid, [-1] * missing)) for _, request, missing in chosen]
        if self._host is None or self._host.vocab_size != logits.shape[1]:
            self._host = ExportHost(self.cls, logits.shape[1], logits.device, tokenizer=self._tokenizer)
        if len(chosen) == len(requests):
            return self._host.process(logits, rows)
        index_tensor = torch.tensor([i for i, _, _ in chosen], dtype=torch.int64, device=logits.device)
        return logits.index_copy(0, index_tensor, self._host.process(logits.index_select(0, index_tensor), rows))

    def _row(self, request: Any, vocab_size: int) -> V1Row | None:
        """Return the processor's row of a request; None if the request does not use it."""
        rows = getattr(request, _ROWS, None)
        if rows is None:
            rows = {}
            setattr(request, _ROWS, rows)
        if self.cls not in rows:
            asked = request.sampling_params
            try:
                arguments = _arguments(asked.custom_params)
                seed = getattr(asked, "sampling_seed", None)
                params = SamplingParams(temperature=asked.temperature, seed=seed, extra_args=arguments)
                rows[self.cls] = V1Row(self._checked(params, vocab_size), list(request.origin_input_ids), [])
            except ValueError as wrong:  # only requests that nobody admitted: an exception here ends the engine
                _log.error("%s leaves a request alone: %s", self.cls.__qualname__, wrong)
                rows[self.cls] = None
        row: V1Row | None = rows[self.cls]
        return row

    def _grown(self, request: Any, newest: list[int]) -> V1Row:
        """Return the request's row with its current tokens; a new row unless it continues the previous tokens."""
        rows: dict[type[Any], V1Row] = getattr(request, _ROWS)
        row, outputs = rows[self.cls], request.output_ids
        held, total = len(row.output_ids), len(outputs) + len(newest)
        same_prompt = len(row.prompt_ids) == len(request.origin_input_ids)
        seen = min(held, len(outputs))
        goes_on = held in (total, total - 1) and (not seen or row.output_ids[seen - 1] in (outputs[seen - 1], -1))
        if not (same_prompt and goes_on):
            row = V1Row(row.params, list(request.origin_input_ids), [*outputs, *newest])
            rows[self.cls] = row
        elif held < total:
            row.output_ids.append(newest[0] if newest else outputs[-1])
        return row

    def _tell(self, what: str) -> None:
        if what not in self._logged:
            self._logged.add(what)
            _log.error("%s: %s", self.cls.__qualname__, what)


def _arguments(custom_params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {key: value for key, value in (custom_params or {}).items() if key != REQUEST} or None
