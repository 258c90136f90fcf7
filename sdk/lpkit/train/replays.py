"""Runs a processor and the built-in stages over responses, as each of vLLM's runners would over their tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, Protocol

import torch

from lpkit.bridging.row_updates import RowUpdates
from lpkit.history.on_host import V1Row
from lpkit.interfaces.config import make_config
from lpkit.portable.admission import AdmissionError
from lpkit.portable.base import raise_from_admission
from lpkit.runtime.batch.context import V2Row, make_context
from lpkit.runtime.batch.request import Request
from lpkit.runtime.batch.slots import V2Slots
from lpkit.runtime.sampler.options import RowOptions, has_penalties, is_greedy
from lpkit.runtime.sampler.v1_sampler import V1Sampler
from lpkit.runtime.sampler.v2_sampler import V2Sampler
from lpkit.sampling_params import SamplingParams
from lpkit.train.batch import Batch, Piece
from lpkit.vocabulary.lookup import NoTokenizer

Runner = Literal["v1", "v2"]
"""The runner whose order of stages applies, e.g. processors before vLLM's penalties (V1) or behind them (V2)."""

_V1_ROWS = 64
"""Rows that a bridge passes at once to a V1 class."""


class Replay(Protocol):
    """Processes the rows of a batch, some at a time and in any order."""

    @property
    def kinds(self) -> Sequence[Hashable]:
        """Kind of each sequence; rows of two kinds are never processed together."""

    def edit(self, logits: torch.Tensor, chunk: Sequence[Piece]) -> torch.Tensor:
        """Return the logits that the chunk's tokens were sampled from; may edit ``logits``, the chunk's rows."""


def replay_of(
    runner: Runner,
    cls: type[Any] | None,
    batch: Batch,
    params: list[SamplingParams],
    limit: int,
    tokenizer: Any = None,
) -> Replay:
    """Make the replay of a batch, in chunks of at most ``limit`` rows; without a class, of the built-in stages alone.

    Raises:
        TypeError: the class lacks the runner's interface.
        ValueError: the processor cannot admit a sequence's request. On V1, ``edit`` raises this.
    """
    if runner not in ("v1", "v2"):
        raise ValueError(f"runner must be 'v1' or 'v2', not {runner!r}")
    wanted, other = ("update_state", "v2") if runner == "v1" else ("add_request", "v1")
    if cls is not None and not hasattr(cls, wanted):
        raise TypeError(
            f"{cls.__qualname__} has no {runner.upper()} interface: "
            f"choose runner={other!r}, or derive it from lpkit's bases"
        )
    with torch.no_grad():
        return (V1Replay if runner == "v1" else V2Replay)(cls, batch, params, limit, tokenizer)


class V2Replay:
    """Replay on V2: the tokens of a chunk are correct drafts, which one ``apply`` verifies."""

    def __init__(
        self, cls: type[Any] | None, batch: Batch, params: list[SamplingParams], limit: int, tokenizer: Any
    ) -> None:
        vocab_size, device = batch.vocab_size, batch.rows.device
        size = max(len(batch.texts), min(limit, _V1_ROWS))
        slots = V2Slots(size, batch.longest, device, vocab_size=vocab_size)
        processors = [] if cls is None else [_made(cls, batch, size, tokenizer, slots.state)]
        self._texts, self._params, self._slots = batch.texts, params, slots
        self._slot_of: list[int] = []
        self._uses: list[bool] = []
        requests = [Request(str(n), params[n], text.prompt) for n, text in enumerate(batch.texts)]
        for text, (request, slot) in zip(batch.texts, slots.change((), requests), strict=True):
            slots.all_token_ids.stage_write(slot, len(text.prompt), text.response)
            self._slot_of.append(slot)
            # The processor never sees a request that does not use it: under autograd, unchanged rows have a cost.
            try:
                self._uses.append(any(processor.add_request(slot, request.params) for processor in processors))
            except AdmissionError as error:
                raise _of_sequence(error, params) from error
        self.kinds: list[Hashable] = [
            (use, _kind(item, vocab_size)) for use, item in zip(self._uses, params, strict=True)
        ]
        self._samplers = {
            use: V2Sampler(processors if use else [], max_num_reqs=size, vocab_size=vocab_size, device=device)
            for use in (False, True)
        }

    def edit(self, logits: torch.Tensor, chunk: Sequence[Piece]) -> torch.Tensor:
        rows = []
        for piece in chunk:
            text, slot = self._texts[piece.sequence], self._slot_of[piece.sequence]
            ids, prompt_len = text.response, len(text.prompt)
            # Tokens before the chunk are committed; the rest of the text is not yet visible.
            self._slots.total_len.stage_write_elem(slot, prompt_len + piece.start)
            for position in range(piece.start, piece.stop):
                before = ids[position - 1] if position else text.prompt[-1]
                rows.append(V2Row(slot, prompt_len + position - 1, before, position - piece.start))
        sampler = self._samplers[self._uses[chunk[0].sequence]]
        with torch.no_grad():
            self._slots.total_len.apply_write()
            sampler.apply_staged_writes()
            ctx = make_context(rows, logits.device)
            options = RowOptions.of(_by_row(chunk, self._texts, self._params), logits.shape[1], logits.device)
        return sampler.edit(logits, ctx, options)


class V1Replay:
    """Replay on V1: each token of a chunk is a request, whose outputs are the tokens before it."""

    def __init__(
        self, cls: type[Any] | None, batch: Batch, params: list[SamplingParams], limit: int, tokenizer: Any
    ) -> None:
        vocab_size, device = batch.vocab_size, batch.rows.device
        rows = min(limit, max(1, sum(len(text.response) for text in batch.texts)))
        processors = [] if cls is None else [_made(cls, batch, rows, tokenizer, device, False)]
        self._texts, self._params = batch.texts, params
        self.kinds: list[Hashable] = [_kind(item, vocab_size) for item in params]
        self._updates = RowUpdates()
        self._sampler = V1Sampler(processors, vocab_size=vocab_size, device=device)

    def edit(self, logits: torch.Tensor, chunk: Sequence[Piece]) -> torch.Tensor:
        rows = []
        for piece in chunk:
            text, params = self._texts[piece.sequence], self._params[piece.sequence]
            rows += [V1Row(params, text.prompt, text.response[:end]) for end in range(piece.start, piece.stop)]
        with torch.no_grad():
            try:
                self._sampler.update(self._updates.arrange(rows), _by_row(chunk, self._texts, self._params))
            except AdmissionError as error:
                raise _of_sequence(error, self._params) from error
        return self._sampler.edit(logits)


def _made(cls: type[Any], batch: Batch, size: int, tokenizer: Any, *others: Any) -> Any:
    """Make a processor for ``size`` requests that raises admission errors; ``others`` follow the configuration."""
    config = make_config(
        max_num_seqs=size,
        vocab_size=batch.vocab_size,
        max_model_len=batch.longest,
        device=batch.rows.device,
        tokenizer=tokenizer,
    )
    processor = cls(config, *others)
    raise_from_admission(processor)
    return processor


def _of_sequence(error: AdmissionError, params: Sequence[SamplingParams]) -> ValueError:
    number = next(n for n, candidate in enumerate(params) if candidate is error.sampling_params)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, NoTokenizer):
        cause = cause.__cause__
    hint = "" if cause is None else "; lpkit.train takes one as tokenizer="
    return ValueError(f"sequence {number}: {error}{hint}")


def _kind(params: SamplingParams, vocab_size: int) -> tuple[bool, bool, bool]:
    """Return the properties of a request that would affect its neighbours' rows.

    In a mixed batch, V1 puts greedy requests through stages whose result it then ignores. Next to a request with top-p,
    both runners rule out other requests' tokens whose probability is 0 in float32.
    """
    return is_greedy(params), params.top_p < 1.0, 0 < params.top_k < vocab_size


def _by_row(chunk: Sequence[Piece], texts: Sequence[Any], params: Sequence[SamplingParams]) -> list[Request]:
    """Make a request for each row, as the built-in stages see it: with the tokens before the row among its outputs."""
    requests: list[Request] = []
    for number, start, stop in chunk:
        text, options = texts[number], params[number]
        request = Request(str(number), options, text.prompt)
        if has_penalties(options) or options.bad_words_token_ids or options.min_tokens:
            requests += [request.having(text.response[:end]) for end in range(start, stop)]
        else:  # no stage reads the outputs
            requests += [request] * (stop - start)
    return requests
