"""V2's sampler: the gate before all processing, and the order of its stages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lpkit import v2
from lpkit.interfaces.config import ThinkingMarkers
from lpkit.runtime.batch.request import Request
from lpkit.runtime.sampler import stages
from lpkit.runtime.sampler.options import RowOptions, has_biases, has_penalties
from lpkit.runtime.sampler.results import Observer, Sampled, Stage, run
from lpkit.runtime.sampler.thinking import FORCED, forced_token
from lpkit.sampling_params import SamplingParams
from lpkit.v2 import LogitsContext


def needs_processing(params: SamplingParams, vocab_size: int, thinking: ThinkingMarkers | None = None) -> bool:
    """True if a built-in stage opens V2's gate for a request, so that ``apply`` runs even if no processor needs it.

    Args:
        params: of the request.
        vocab_size: columns of the logits.
        thinking: the markers of thoughts, or None.
    """
    sampling = params.temperature != 0 and (
        params.temperature != 1 or params.min_p != 0 or params.top_p != 1 or 0 < params.top_k < vocab_size
    )
    budget = thinking is not None and thinking.complete and params.thinking_token_budget is not None
    return bool(sampling or has_biases(params) or has_penalties(params) or params.bad_words_token_ids or budget)


class V2Gate:
    """The slots that need processed logits. If any slot of a batch does, all of its rows go through the processors.

    Args:
        max_num_reqs: number of slots.
        vocab_size: columns of the logits.
        thinking: the markers of thoughts, or None.
    """

    def __init__(self, max_num_reqs: int, vocab_size: int, thinking: ThinkingMarkers | None = None) -> None:
        self._vocab_size = vocab_size
        self._thinking = thinking
        self._needs = np.zeros(max_num_reqs, dtype=bool)

    def enter(self, slot: int, params: SamplingParams, asked: bool) -> None:
        """Record a new or resumed request.

        Args:
            slot, params: of the request.
            asked: True if a processor's ``add_request`` returned True.
        """
        self._needs[slot] = asked or needs_processing(params, self._vocab_size, self._thinking)

    def is_open(self, slots: npt.ArrayLike) -> bool:
        """True if a batch is processed.

        Args:
            slots: of the requests of a batch; the gate is closed for an empty batch.
        """
        return bool(self._needs[np.asarray(slots, dtype=np.int64)].any())


class V2Sampler:
    """Processors and built-in stages in the engine's order.

    Args:
        processors: custom processors in list order.
        max_num_reqs: number of slots.
        vocab_size, device, seed: as for V1's sampler.
        thinking: the markers of thoughts, or None.

    Attributes:
        observer: called after each stage; None: nobody looks.
    """

    def __init__(
        self,
        processors: Sequence[v2.LogitsProcessor] = (),
        *,
        max_num_reqs: int,
        vocab_size: int = 512,
        device: str | torch.device = "cpu",
        seed: int = 0,
        thinking: ThinkingMarkers | None = None,
    ) -> None:
        self.processors = list(processors)
        self.thinking = thinking
        self.vocab_size = vocab_size
        self.device = torch.device(device)
        self.seed = seed
        self.observer: Observer | None = None
        self.gate = V2Gate(max_num_reqs, vocab_size, thinking)
        self._options = RowOptions.of([], vocab_size, self.device)

    def add_request(self, slot: int, params: SamplingParams) -> None:
        """Send a new or resumed request to every processor, and note if it needs processing.

        Args:
            slot, params: of the request.
        """
        asked = [bool(processor.add_request(slot, params)) for processor in self.processors]
        self.gate.enter(slot, params, any(asked))

    def apply_staged_writes(self) -> None:
        """Flush the processors' writes; called in every step, after the slots are flushed."""
        for processor in self.processors:
            processor.apply_staged_writes()

    def __call__(self, logits: torch.Tensor, ctx: LogitsContext, requests: Sequence[Request]) -> Sampled:
        """Choose a token for every row without editing ``logits``.

        ``requests`` has one request per row; the row of a draft has the drafts before it among its request's outputs.
        """
        if self._options.requests != requests:
            self._options = RowOptions.of(requests, self.vocab_size, self.device)
        options = self._options
        if self.gate.is_open(ctx.idx_mapping_np):
            logits = self.edit(torch.empty_like(logits, dtype=torch.float32).copy_(logits), ctx, options)
        greedy = logits.argmax(-1)
        if options.all_greedy:
            return Sampled(greedy, logits)
        token_ids = stages.sample(logits, options.noise(self.seed))
        return Sampled(torch.where(options.temperature == 0, greedy, token_ids), logits)

    def edit(self, logits: torch.Tensor, ctx: LogitsContext, options: RowOptions) -> torch.Tensor:
        """Run all stages, editing ``logits`` in place.

        Args:
            logits: float32 ``[n, vocab]``.
            ctx: the rows of the step.
            options: the built-in stages' options of each row.

        Returns:
            Logits from which tokens are chosen, of the same shape.
        """
        sampling: list[Stage] = [
            ("allowed_token_ids", options.allow),
            ("logit_bias", options.add_bias),
            ("min_tokens", lambda logits: self._hold_back_stops(logits, ctx, options)),
            ("penalties", options.penalise),
            ("bad_words", options.ban_words),
            *((processor, partial(_apply, processor, ctx)) for processor in self.processors),
            ("thinking_token_budget", lambda logits: self._force_ends_of_thoughts(logits, options)),
            ("temperature", lambda logits: stages.apply_temperature(logits, options.temperature)),
            ("min_p", lambda logits: options.drop_below(logits, stages.min_p_of_logits)),
            ("top_k, top_p", lambda logits: stages.apply_top_k_top_p(logits, options.top_k, options.top_p)),
        ]
        return run(sampling, logits, self.observer)

    def _hold_back_stops(self, logits: torch.Tensor, ctx: LogitsContext, options: RowOptions) -> torch.Tensor:
        # Positions decide, not the host's lists: during a chunked prefill the row sees fewer tokens.
        if not options.min_tokens:
            return logits
        visible = (ctx.pos + 1).tolist()
        output_lens = [n - r.prompt_len for n, r in zip(visible, options.requests, strict=True)]
        return options.hold_back_stops(logits, output_lens)

    def _force_ends_of_thoughts(self, logits: torch.Tensor, options: RowOptions) -> torch.Tensor:
        forced = {}
        if self.thinking is not None:
            for row, request in enumerate(options.requests):
                budget = request.params.thinking_token_budget
                if budget is not None:
                    tokens = [*(request.prompt_token_ids or ()), *request.output_token_ids]
                    forced[row] = forced_token(tokens, budget, self.thinking)
        chosen = {row: token for row, token in forced.items() if token is not None}
        return stages.write_tokens(logits, list(chosen), list(chosen.values()), FORCED)


def _apply(processor: Any, ctx: LogitsContext, logits: torch.Tensor) -> Any:
    return processor.apply(logits, ctx)
