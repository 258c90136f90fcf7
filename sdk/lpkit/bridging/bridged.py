"""Runs an existing V1-only class on V2: each ``apply`` becomes the V1 engine's ``update_state`` and ``apply``."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import torch

from lpkit import v1, v2
from lpkit.bridging.row_updates import RowUpdates
from lpkit.columns.transfer import sent
from lpkit.history.on_host import HostHistories, V1Row
from lpkit.history.rows import HISTORY_USES, HistoryUse
from lpkit.portable.base import RESERVED
from lpkit.portable.spelling import one_of, refuse_misspelt
from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams

logger = logging.getLogger("lpkit")

_RUNNER_CODE = frozenset({"__init__", "__new__", "add_request", "apply", "apply_staged_writes", "update_state"})

_COPY = {
    "tokens": "each step copies the new tokens to the host, so the host waits for the GPU once per step "
    "(declare history = 'length' or 'none' if the class reads less)",
    "length": "token ids are placeholders: the bridge declares history = 'length'",
    "none": "prompt and output lists must not be read: the bridge declares history = 'none'",
}


class Bridged(v1.LogitsProcessor, v2.LogitsProcessor):
    """Base of a bridge: set ``wraps`` to the V1 class, and vLLM loads the bridge on both runners.

    ::

        class TargetToken(lpkit.Bridged):
            wraps = OldTargetToken
            keys = ("target_token",)

    On V1, ``TargetToken(vllm_config, device, is_pin_memory)`` returns an ``OldTargetToken``, so the engine uses your
    class directly. On V2, lpkit compares the rows of each ``apply`` with the previous call and reports the changes to
    the V1 instance as the V1 engine does: updates, live token lists, replay after a preemption. A warning, logged once,
    lists the differences on V2.

    Attributes:
        wraps: the V1 class.
        keys: keys of ``SamplingParams.extra_args``. On V2 the V1 class never sees a request without any of them, at no
            cost. Without keys it sees every request, because a V1 class does not declare which requests it edits; then
            each step of each batch is processed. For other rules override :meth:`concerns`.
        history: part of the token lists that the V1 class reads: ``"tokens"``, ``"length"`` or ``"none"``.
    """

    wraps: ClassVar[type[v1.LogitsProcessor]]
    keys: ClassVar[tuple[str, ...]] = ()
    history: ClassVar[HistoryUse] = "tokens"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check(cls)

    def __new__(cls, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> Any:
        """Take ``(vllm_config, device, is_pin_memory)`` on V1, ``(vllm_config, req_states)`` on V2."""
        if "wraps" not in vars(cls) and not hasattr(cls, "wraps"):
            raise TypeError(f"{cls.__qualname__} names no V1 class: set wraps")
        if not hasattr(device_or_states, "all_token_ids"):
            return cls.wraps(vllm_config, device_or_states, bool(is_pin_memory))
        return super().__new__(cls)

    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        device = torch.device(device_or_states.device)
        self._wrapped = self.wraps(vllm_config, device, device.type == "cuda")
        self._invariant = bool(self._wrapped.is_argmax_invariant())
        speculative = getattr(vllm_config, "speculative_config", None) is not None
        self._histories = HostHistories(device_or_states, self.history, speculative)
        self._limit: int = device_or_states.max_num_reqs
        self._batch = RowUpdates()
        self._scale: torch.Tensor | None = None
        self._gathered: tuple[list[int], torch.Tensor] | None = None
        _warn(type(self), self._invariant, speculative)

    @classmethod
    def concerns(cls, sampling_params: SamplingParams) -> bool:
        """Decide on V2 if the V1 class sees a request. May be overridden; must not raise.

        Args:
            sampling_params: of the request.

        Returns:
            True if the request has one of ``keys``, or if there are no keys.
        """
        extra_args = sampling_params.extra_args
        return not cls.keys or bool(extra_args and any(key in extra_args for key in cls.keys))

    # -- vLLM calls these ------------------------------------------------------------------------------------

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        validate = getattr(cls.wraps, "validate_params", None)
        if validate is not None:  # older vLLM releases have none
            validate(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """Return the V1 class's own claim."""
        return self._invariant

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        """Raise: vLLM never calls this, because on V1 the engine holds an instance of the V1 class.

        Args:
            batch_update: not read.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("a bridge that was constructed for V2 has no batch updates")

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        if self._takes(sampling_params):
            self._histories.enter(req_idx, sampling_params)
            return True
        self._histories.decline(req_idx)
        return False

    def _takes(self, sampling_params: SamplingParams) -> bool:
        if self._invariant and sampling_params.temperature < GREEDY_EPSILON:
            return False  # V1 discards the result of an argmax-invariant processor for a greedy request
        try:
            if not self.concerns(sampling_params):
                return False
            self.validate_params(sampling_params)  # vLLM's Rust front end does not
            return True
        except Exception:
            logger.exception("%s cannot take a request; the processor is off for this request", type(self).__qualname__)
            return False

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext | None = None) -> torch.Tensor:
        """Follow the rows, then let the V1 instance edit them (V2).

        Args:
            logits: float32 ``[rows, vocab]``.
            ctx: the rows of the step.

        Returns:
            ``logits``, edited in place.
        """
        assert ctx is not None
        index, rows = self._histories.rows(ctx)
        # Drafts are rows as well, and a V1 class may have tables of max_num_seqs rows.
        for start in range(0, len(rows), self._limit):
            logits = self._step(logits, index[start : start + self._limit], rows[start : start + self._limit])
        return logits

    # -- one step of the V1 instance -------------------------------------------------------------------------

    def _step(self, logits: torch.Tensor, index: list[int], rows: list[V1Row]) -> torch.Tensor:
        update = self._batch.arrange(rows)
        self._wrapped.update_state(update)
        if update is not None:
            self._scale = self._temperatures(rows, logits.device) if self._invariant else None
        first, last = index[0], index[-1] + 1
        if last - first != len(index):
            where = self._where(index, logits.device)
            part = logits.index_select(0, where)
            return logits.index_copy_(0, where, edited_divided(self._wrapped.apply, part, self._scale))
        part = logits[first:last]
        edited = edited_divided(self._wrapped.apply, part, self._scale)
        if len(index) == logits.shape[0]:
            return edited
        if edited is not part:
            part.copy_(edited)
        return logits

    @staticmethod
    def _temperatures(rows: list[V1Row], device: torch.device) -> torch.Tensor | None:
        values = [row.params.temperature for row in rows]
        if all(value == 1.0 for value in values):
            return None
        return sent(torch.tensor(values, dtype=torch.float32), device).unsqueeze(1)

    def _where(self, index: list[int], device: torch.device) -> torch.Tensor:
        if self._gathered is None or self._gathered[0] != index:
            self._gathered = (index, sent(torch.tensor(index), device))
        return self._gathered[1]


def edited_divided(
    apply: Callable[[torch.Tensor], torch.Tensor], logits: torch.Tensor, scale: torch.Tensor | None
) -> torch.Tensor:
    """Apply a V1 class to logits divided by temperatures ``[rows, 1]``, as its sampling stage sees them, and multiply
    the result; None: the class sees ``logits``. May edit ``logits``."""
    if scale is None:
        return apply(logits)
    edited = apply(logits / scale)
    # Unchanged values are restored exactly: x / t * t is not always x.
    again = logits / scale
    unchanged = edited == again
    if logits.requires_grad:
        return torch.where(unchanged, logits, edited * scale)
    torch.mul(edited, scale, out=again)
    return torch.where(unchanged, logits, again, out=logits)


def _check(cls: type[Bridged]) -> None:
    """Refuse mistakes when the class is defined, rather than later."""
    name = cls.__qualname__
    refuse_misspelt(
        cls, {"wraps": v1.LogitsProcessor, "keys": (), "history": "", "concerns": vars(Bridged)["concerns"]}
    )
    one_of(cls, "history", HISTORY_USES)
    if isinstance(cls.keys, str) or not all(isinstance(key, str) for key in cls.keys):
        raise TypeError(f"{name}.keys must be a tuple of extra_args keys, not {cls.keys!r}")
    taken = (_RUNNER_CODE | RESERVED) & vars(cls).keys()
    if taken:
        raise TypeError(f"{name} defines {', '.join(sorted(taken))}: a bridge has only wraps, keys and history")
    if "wraps" in vars(cls):
        check_v1_class(cls.wraps)


def check_v1_class(target: Any) -> None:
    """Refuse a class that no bridge can wrap.

    Raises:
        TypeError: ``target`` cannot be bridged; the message says why.
    """
    if not isinstance(target, type):
        raise TypeError(f"a bridge wraps a V1 class, not {target!r}")
    name = f"{target.__module__}.{target.__qualname__}"
    if issubclass(target, v1.LogitsProcessor) and issubclass(target, v2.LogitsProcessor):
        raise TypeError(f"{name} runs on both runners already: there is nothing to bridge")
    if issubclass(target, v2.LogitsProcessor):
        raise TypeError(f"{name} implements only the V2 interface; the bridge goes from V1 to V2")
    if not issubclass(target, v1.LogitsProcessor):
        raise TypeError(f"{name} is not a V1 logits processor: it does not derive from vLLM's LogitsProcessor")
    if inspect.isabstract(target):
        missing = ", ".join(sorted(target.__abstractmethods__))
        raise TypeError(f"{name} is abstract: it has no {missing}")


@cache
def _warn(cls: type[Bridged], invariant: bool, speculative: bool) -> None:
    """Log once per class the limits of a bridge."""
    points = [
        "it runs before the temperature (its logits are divided and multiplied back) and before vLLM's min_p; on V1 it "
        "runs after both"
        if invariant
        else "it runs after the penalties; on V1 it runs before them",
        _COPY[cls.history],
        "assumptions about the order of rows, beyond the batch updates, may not hold",
    ]
    if not cls.keys and cls.concerns.__func__ is Bridged.concerns.__func__:  # type: ignore[attr-defined]
        points.append("it sees every request; name its extra_args keys in the bridge to exclude the others")
    if speculative:
        points.append("it sees every draft as a separate request, added again in each step")
    logger.warning("%s runs on vLLM's V2 runner through a bridge: %s", cls.__qualname__, "; ".join(points))
