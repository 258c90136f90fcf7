"""Continuous batching over a reference engine: arrivals, chunked prefill, preemption, finishes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from lpkit.runtime.batch.request import Request
from lpkit.runtime.engine.base import Engine
from lpkit.runtime.engine.results import StepResult
from lpkit.runtime.engine.v1_engine import V1Engine
from lpkit.runtime.engine.v2_engine import V2Engine
from lpkit.sampling_params import SamplingParams


class Scheduler:
    """First come, first served, with a budget of tokens per step and of cache blocks.

    Args:
        engine: either engine.
        max_num_batched_tokens: tokens fed per step; a longer prompt is fed in chunks.
        num_blocks: cache blocks. When they run out, the newest running request is preempted, and later resumed with its
            outputs. None: no limit.
        block_size: tokens per block.
        new_lists: True to give a resumed request a new output list, as asynchronous scheduling does.

    Attributes:
        finished: finished requests, by id.
        reasons: reason of each end, by id: "stop", "length" or "abort".
        num_preemptions: number of preemptions.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_num_batched_tokens: int = 256,
        num_blocks: int | None = None,
        block_size: int = 16,
        new_lists: bool = False,
    ) -> None:
        self.engine = engine
        self.max_num_batched_tokens = max_num_batched_tokens
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.new_lists = new_lists
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.finished: dict[str, Request] = {}
        self.reasons: dict[str, str] = {}
        self.num_preemptions = 0
        self.num_steps = 0
        self._later: list[tuple[int, Request]] = []
        self._held: dict[str, int] = {}
        self._stopping: list[Request] = []

    def submit(self, request: Request, at_step: int = 0) -> None:
        """Queue a request, or schedule its arrival.

        Args:
            request: a request that is in no engine.
            at_step: the step before which the request arrives; 0: now.

        Raises:
            ValueError: the request could never run in this engine.
        """
        longest = request.prompt_len + request.max_tokens
        if longest > self.engine.max_model_len:
            raise ValueError(f"{longest} tokens do not fit max_model_len {self.engine.max_model_len}")
        if self.num_blocks is not None and self._blocks(longest) > self.num_blocks:
            raise ValueError(f"{longest} tokens do not fit {self.num_blocks} blocks of {self.block_size}")
        if at_step > self.num_steps:
            self._later.append((at_step, request))
        else:
            self.waiting.append(request)

    def abort(self, request_id: str) -> None:
        """End the request ``request_id``: running, waiting or about to arrive. An unknown id is ignored."""
        for request in (*self.running, *self.waiting, *(request for _, request in self._later)):
            if request.request_id == request_id:
                self._end(request, "abort")

    @property
    def unfinished(self) -> bool:
        return bool(self.running or self.waiting or self._later)

    def step(self) -> StepResult:
        """Schedule, run and finish requests; a step may have nothing to feed.

        Returns:
            The engine's result.
        """
        due = [request for at, request in self._later if at <= self.num_steps]
        self._later = [item for item in self._later if item[0] > self.num_steps]
        self.waiting.extend(due)
        self.num_steps += 1
        plan, budget, preempted = self._schedule_running()
        if not preempted:
            self._schedule_waiting(plan, budget)
        stopped, self._stopping = self._stopping, []
        result = self.engine.step(plan, discard=[request.request_id for request in stopped])
        for request in stopped:
            self._end(request, "stop")
        for request_id in result.tokens:
            request = self.engine.requests[request_id]
            reason = request.finish_reason()
            if reason == "stop" and self.engine.config.scheduler_config.async_scheduling:
                # The next step has already started; its token is discarded.
                self._stopping.append(request)
            elif reason:
                self._end(request, reason)
        return result

    def run(self, max_steps: int = 1_000_000) -> dict[str, list[int]]:
        """Run steps until every request has finished; return their outputs by id.

        Raises:
            RuntimeError: some requests are unfinished after ``max_steps`` steps.
        """
        for _ in range(max_steps):
            if not self.unfinished:
                break
            self.step()
        if self.unfinished:
            raise RuntimeError(f"requests are unfinished after {max_steps} steps")
        self.engine.step({})
        return {request_id: list(request.output_token_ids) for request_id, request in self.finished.items()}

    def _schedule_running(self) -> tuple[dict[str, int], int, bool]:
        plan: dict[str, int] = {}
        budget = self.max_num_batched_tokens
        preempted = False
        place = 0
        while place < len(self.running) and budget:
            request = self.running[place]
            count = min(request.remaining, budget)
            while not self._hold(request, request.num_computed_tokens + count):
                victim = self.running.pop()
                self._held.pop(victim.request_id)
                self.engine.preempt(victim.request_id)
                self.waiting.appendleft(victim)
                self.num_preemptions += 1
                preempted = True
                if victim is request:
                    return plan, budget, preempted
            plan[request.request_id] = count
            budget -= count
            place += 1
        return plan, budget, preempted

    def _schedule_waiting(self, plan: dict[str, int], budget: int) -> None:
        while self.waiting and budget and len(self.running) < self.engine.max_num_seqs:
            request = self.waiting[0]
            count = min(request.remaining, budget)
            if not self._hold(request, request.num_computed_tokens + count):
                return
            self.waiting.popleft()
            self.running.append(request)
            if request.request_id in self.engine.requests:
                self.engine.resume(request.request_id, new_list=self.new_lists)
            else:
                self.engine.add(request)
            plan[request.request_id] = count
            budget -= count

    def _end(self, request: Request, reason: str) -> None:
        """Forget a request, in whatever state it is."""
        if request.request_id in self.finished:
            return
        self.running = [r for r in self.running if r is not request]
        self.waiting = deque(r for r in self.waiting if r is not request)
        self._later = [item for item in self._later if item[1] is not request]
        self._held.pop(request.request_id, None)
        if request.request_id in self.engine.requests:
            self.engine.finish(request.request_id)
        self.finished[request.request_id], self.reasons[request.request_id] = request, reason

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _hold(self, request: Request, tokens: int) -> bool:
        """Reserve the blocks for a request's first ``tokens`` tokens; False if too few are free."""
        held = self._held.get(request.request_id, 0)
        wanted = max(self._blocks(tokens), held)
        if self.num_blocks is not None and sum(self._held.values()) - held + wanted > self.num_blocks:
            return False
        self._held[request.request_id] = wanted
        return True


def generate(
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Iterable[SamplingParams],
    *,
    processors: Iterable[Any] = (),
    runner: str = "v1",
    max_num_batched_tokens: int = 256,
    num_blocks: int | None = None,
    block_size: int = 16,
    **options: Any,
) -> list[list[int]]:
    """Generate outputs for some prompts, batched as in ``LLM.generate``.

    Args:
        prompts: token ids of each prompt; no prompt may be empty.
        runner: ``"v1"`` or ``"v2"``.
        max_num_batched_tokens, num_blocks, block_size: as for :class:`Scheduler`.
        params: for all prompts, or one for each prompt; ``max_tokens`` of None means 16.
        processors: processors for the engine of ``runner``.
        **options: of the engine.

    Returns:
        The output token ids of each prompt, in the order of the prompts.
    """
    engine = {"v1": V1Engine, "v2": V2Engine}[runner](processors, **options)
    scheduler = Scheduler(
        engine, max_num_batched_tokens=max_num_batched_tokens, num_blocks=num_blocks, block_size=block_size
    )
    each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
    for i, (prompt, p) in enumerate(zip(prompts, each, strict=True)):
        scheduler.submit(Request(f"r{i}", p, list(prompt), p.max_tokens or 16))
    outputs = scheduler.run()
    return [outputs[f"r{i}"] for i in range(len(prompts))]
