"""A request in the reference engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lpkit.sampling_params import SamplingParams


class Request:
    """A prompt, its sampling parameters and its outputs so far.

    Attributes:
        request_id: unique among the requests of an engine.
        params: the request's ``SamplingParams``.
        prompt_token_ids: the prompt, or None when it came as embeddings (V1 only).
        max_tokens: outputs after which the scheduler finishes the request.
        output_token_ids: the live list that a V1 processor gets. To imitate asynchronous scheduling, where a resumed
            request brings a new list, assign a copy before the resume.
        num_computed_tokens: tokens already fed to the model; below ``total_len - 1`` during a chunked
            prefill, 0 after a preemption.

    Args:
        prompt_len: the length of a prompt without token ids.

    Raises:
        ValueError: the prompt is empty, or has neither ids nor a length.
    """

    __slots__ = (
        "max_tokens",
        "num_computed_tokens",
        "output_token_ids",
        "params",
        "prompt_len",
        "prompt_token_ids",
        "request_id",
    )

    def __init__(
        self,
        request_id: str,
        params: SamplingParams,
        prompt_token_ids: list[int] | None,
        max_tokens: int = 16,
        *,
        prompt_len: int | None = None,
        output_token_ids: Sequence[int] = (),
    ) -> None:
        length = len(prompt_token_ids) if prompt_token_ids is not None else prompt_len
        if not length:
            raise ValueError(f"request {request_id!r} needs a prompt of at least one token")
        self.request_id = request_id
        self.params = params
        self.prompt_token_ids = prompt_token_ids
        self.prompt_len = length
        self.max_tokens = max_tokens
        self.output_token_ids: list[int] = list(output_token_ids)
        self.num_computed_tokens = 0

    def having(self, output_token_ids: Sequence[int]) -> Request:
        """Return a copy with other outputs, which the engine has not computed yet.

        Args:
            output_token_ids: copied.
        """
        given = self.request_id, self.params, self.prompt_token_ids, self.max_tokens
        return Request(*given, prompt_len=self.prompt_len, output_token_ids=output_token_ids)

    def __repr__(self) -> str:
        return f"Request({self.request_id!r}, prompt={self.prompt_len}, outputs={len(self.output_token_ids)})"

    @property
    def total_len(self) -> int:
        """Number of prompt and generated tokens."""
        return self.prompt_len + len(self.output_token_ids)

    @property
    def remaining(self) -> int:
        """Number of tokens to feed before the next sample; 1 while decoding."""
        return self.total_len - self.num_computed_tokens

    @property
    def last_token_id(self) -> int:
        """The newest token; -1 if it belongs to an embedded prompt."""
        return self.token_at(self.total_len - 1)

    def token_at(self, position: int) -> int:
        """Return the token at ``position`` of prompt + outputs; -1 inside an embedded prompt.

        Args:
            position: counted from the start of the prompt.
        """
        if position >= self.prompt_len:
            return self.output_token_ids[position - self.prompt_len]
        return -1 if self.prompt_token_ids is None else self.prompt_token_ids[position]

    def finish_reason(self) -> str | None:
        """Return ``"stop"`` or ``"length"`` if the newest token ends the request, else None."""
        outputs = self.output_token_ids
        if outputs and len(outputs) >= self.params.min_tokens:
            stop_ids = self.params.stop_token_ids
            if stop_ids and outputs[-1] in stop_ids:
                return "stop"
        return "length" if len(outputs) >= self.max_tokens else None
