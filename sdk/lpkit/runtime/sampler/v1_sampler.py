"""V1's sampler: the order of its stages, and the stages that greedy requests skip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from lpkit import v1
from lpkit.runtime.batch.request import Request
from lpkit.runtime.sampler import stages
from lpkit.runtime.sampler.options import RowOptions
from lpkit.runtime.sampler.results import Observer, Sampled, Stage, run
from lpkit.runtime.sampler.thinking import V1ThinkingBudget
from lpkit.sampling_params import GREEDY_EPSILON
from lpkit.v1 import BatchUpdate, LogitsProcessors


class V1Sampler:
    """Processors and built-in stages in the engine's order.

    Args:
        processors: custom processors; their ``is_argmax_invariant`` is called here, once.
        vocab_size: columns of the logits.
        device: of the logits.
        seed: of the requests without a seed.
        thinking: the thinking budget's stage, if the model has markers of thoughts.

    Attributes:
        observer: called after each stage; None: nobody looks.
    """

    def __init__(
        self,
        processors: Iterable[v1.LogitsProcessor] = (),
        *,
        vocab_size: int = 512,
        device: str | torch.device = "cpu",
        seed: int = 0,
        thinking: V1ThinkingBudget | None = None,
    ) -> None:
        self.processors = LogitsProcessors(processors)
        self.thinking = thinking
        self.vocab_size = vocab_size
        self.device = torch.device(device)
        self.seed = seed
        self.observer: Observer | None = None
        self._options = RowOptions.of([], vocab_size, self.device)

    def update(self, update: BatchUpdate | None, requests: Sequence[Request]) -> None:
        """Send the batch update to every processor, argmax-invariant processors first.

        Args:
            update: the changes; None if nothing changed.
            requests: the batch's requests by row after the update.
        """
        for processor in self.processors.all:
            processor.update_state(update)
        if self.thinking is not None:
            self.thinking.sync(update)
        if update is not None:
            self._options = RowOptions.of(requests, self.vocab_size, self.device)

    @property
    def needs_output_ids(self) -> bool:
        """True if a built-in stage of the batch reads the requests' output ids."""
        tracked = self.thinking is not None and self.thinking.has_tracked_requests
        return tracked or self._options.penalties is not None or bool(self._options.bad_words)

    def __call__(self, logits: torch.Tensor) -> Sampled:
        """Process ``logits`` ``[n, vocab]``, possibly in place, and choose a token for every row."""
        options = self._options
        logits = self._before_greedy(logits.to(torch.float32), options)
        if options.all_greedy:
            return Sampled(logits.argmax(-1), logits)
        greedy = None if options.all_random else logits.argmax(-1)
        logits = self._before_sampling(logits, options)
        token_ids = stages.sample(logits, options.noise(self.seed))
        if greedy is not None:
            token_ids = torch.where(options.temperature < GREEDY_EPSILON, greedy, token_ids)
        return Sampled(token_ids, logits)

    def edit(self, logits: torch.Tensor) -> torch.Tensor:
        """Run all stages of the batch's requests, editing ``logits`` in place.

        Args:
            logits: float32 ``[n, vocab]``.

        Returns:
            Logits from which tokens are chosen, of the same shape. If all requests are greedy, the sampling stages are
            skipped.
        """
        logits = self._before_greedy(logits, self._options)
        return logits if self._options.all_greedy else self._before_sampling(logits, self._options)

    def _before_greedy(self, logits: torch.Tensor, options: RowOptions) -> torch.Tensor:
        lens = [len(request.output_token_ids) for request in options.requests]
        stages: list[Stage] = [
            ("allowed_token_ids", options.allow),
            ("bad_words", options.ban_words),
            ("min_tokens", lambda logits: options.hold_back_stops(logits, lens)),
            ("logit_bias", options.add_bias),
            *((processor, processor.apply) for processor in self.processors.non_argmax_invariant),
            ("penalties", options.penalise),
            ("thinking_token_budget", self._end_thoughts),
        ]
        return run(stages, logits, self.observer)

    def _end_thoughts(self, logits: torch.Tensor) -> torch.Tensor:
        if self.thinking is None:
            return logits
        self.thinking.advance([request.output_token_ids for request in self._options.requests])
        return self.thinking.apply(logits)

    def _before_sampling(self, logits: torch.Tensor, options: RowOptions) -> torch.Tensor:
        sampling: list[Stage] = [
            ("temperature", lambda logits: stages.apply_temperature(logits, options.temperature)),
            ("min_p", lambda logits: options.drop_below(logits, stages.min_p_of_probabilities)),
            *((processor, processor.apply) for processor in self.processors.argmax_invariant),
            ("top_k, top_p", lambda logits: stages.apply_top_k_top_p(logits, options.top_k, options.top_p)),
        ]
        return run(sampling, logits, self.observer)
