"""What a bridge costs per step, against the V1 class on its own runner and a portable version of the same rule.

    python benchmarks/bridge_overhead.py [--vocab 32768] [--steps 100] [--device cpu]

One line per rule and kind of step; microseconds per step, 10th percentile (a busy machine only adds). Only what the
engine calls of the processor is timed: on V1 ``update_state`` and ``apply``, on V2 ``add_request``,
``apply_staged_writes`` and ``apply``. ``steady``: every request goes on. ``churn``: in every step the oldest request is
replaced by a new one.
"""

from __future__ import annotations

import argparse
import functools
import logging
import math
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import lpkit
import torch
from lpkit import v1
from lpkit.runtime import Request, V1Batch, V2Row, V2Slots, make_config, make_context
from lpkit.sampling_params import SamplingParams

PROMPT = 64
ROWS = (8, 64, 256)


class V1Base(v1.LogitsProcessor):
    """State by row in a dict, kept by vLLM's helper."""

    invariant = False

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.device = device
        self.rows: dict[int, Any] = {}
        self.sent: tuple[torch.Tensor, ...] = ()

    def is_argmax_invariant(self) -> bool:
        return self.invariant

    def enter(self, params: Any, prompt: Any, outputs: Any) -> Any:
        return params.extra_args["amount"]

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        if v1.process_dict_updates(self.rows, batch_update, self.enter):
            self.sent = (
                torch.tensor(list(self.rows), device=self.device),
                torch.tensor([self.value(item) for item in self.rows.values()], device=self.device),
            )

    def value(self, state: Any) -> float:
        return float(state)


class OldBias(V1Base):
    """Token 7 is raised; reads no history."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows, amounts = self.sent
        logits[rows, 7] += amounts
        return logits


class OldMinP(V1Base):
    """Min-p on probabilities; claims argmax invariance."""

    invariant = True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows, amounts = self.sent
        lowest = torch.empty(len(logits), device=self.device).scatter_(0, rows, amounts.log())
        return logits.masked_fill_(logits < logits.amax(1, keepdim=True) + lowest.unsqueeze(1), -math.inf)


class OldPenalty(V1Base):
    """The last 16 output tokens are lowered; reads the live list of every row."""

    def enter(self, params: Any, prompt: Any, outputs: Any) -> Any:
        return params.extra_args["amount"], outputs

    def value(self, state: Any) -> float:
        return float(state[0])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows: list[int] = []
        ids: list[int] = []
        amounts: list[float] = []
        for row, (amount, outputs) in self.rows.items():
            recent = set(outputs[-16:])
            rows += [row] * len(recent)
            ids += recent
            amounts += [amount] * len(recent)
        if rows:
            packed = torch.tensor([rows, ids], device=self.device)
            logits[packed[0], packed[1]] -= torch.tensor(amounts, device=self.device)
        return logits


class Amount(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        amount: float

    amount = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.amount[request.slot] = request.params.amount
        return True


class NewBias(Amount):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = torch.full((rows.n, 1), 7, device=self.device)
        logits[ids] = logits[ids] + self.amount[rows].unsqueeze(1)


class NewMinP(Amount):
    stage = "sampling"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        floor = logits.amax(-1, keepdim=True) + rows.temperature * self.amount[rows].log().unsqueeze(1)
        return logits.masked_fill_(logits < floor, -math.inf)


class NewPenalty(Amount):
    history = "tokens"

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ago = rows.total_len.unsqueeze(1) - torch.arange(1, 17, device=self.device)
        recent = rows.tokens.gather(1, ago.clamp(min=0)).masked_fill(ago < rows.prompt_len.unsqueeze(1), -1)
        logits[recent] = logits[recent] - self.amount[rows].unsqueeze(1)


RULES: dict[str, tuple[Any, Any, Any]] = {
    "bias, history none": (OldBias, lpkit.bridge(OldBias, history="none", name="BiasNone"), NewBias),
    "bias, history tokens": (OldBias, lpkit.bridge(OldBias, name="BiasTokens"), NewBias),
    "penalty, reads tokens": (OldPenalty, lpkit.bridge(OldPenalty, name="Penalty"), NewPenalty),
    "min-p, temperature 1": (OldMinP, lpkit.bridge(OldMinP, history="none", name="MinPOne"), NewMinP),
    "min-p, temperature 0.8": (OldMinP, lpkit.bridge(OldMinP, history="none", name="MinPScaled"), NewMinP),
}


class Bench:
    """One processor in a batch of ``n`` requests."""

    def __init__(self, cls: Any, on_v2: bool, n: int, temperature: float, options: argparse.Namespace) -> None:
        self.n, self.on_v2, self.temperature, self.options = n, on_v2, temperature, options
        device = torch.device(options.device)
        config = make_config(max_num_seqs=n, vocab_size=options.vocab, max_model_len=1024, device=device)
        self.slots = V2Slots(n, 1024, device, vocab_size=options.vocab)
        self.batch = V1Batch(n)
        self.requests: list[Request] = []
        self.processor = cls(config, self.slots.state) if on_v2 else cls(config, device, device.type == "cuda")
        self.made = 0
        self.pending: list[Callable[[], Any]] = []
        generator = torch.Generator(device).manual_seed(0)
        self.raw = torch.randn(n, options.vocab, device=device, generator=generator)
        self.logits = torch.empty_like(self.raw)
        self._enter(n)

    def request(self) -> Request:
        self.made += 1
        params = SamplingParams(temperature=self.temperature, extra_args={"amount": 0.3 + 0.001 * (self.made % 7)})
        return Request(f"r{self.made}", params, [(self.made + i) % 1000 for i in range(PROMPT)], 10**6)

    def _enter(self, count: int) -> None:
        """New requests; what the engine then calls is pending until the next step."""
        for _ in range(count):
            request = self.request()
            self.requests.append(request)
            if self.on_v2:
                slot = self.slots.add(request)
                self.pending.append(functools.partial(self.processor.add_request, slot, request.params))
            else:
                self.batch.add(request)
        if self.on_v2 and count:
            self.slots.flush()

    def step(self, churn: bool) -> float:
        """One step; seconds spent in the processor."""
        if churn:
            oldest = self.requests.pop(0)
            if self.on_v2:
                self.slots.free(oldest.request_id)
            else:
                self.batch.remove(oldest.request_id)
            self._enter(1)
        self.logits.copy_(self.raw)
        if self.on_v2:
            places = [self.slots.slot(request.request_id) for request in self.requests]
            rows = [
                V2Row(slot, request.total_len - 1, request.last_token_id)
                for slot, request in zip(places, self.requests, strict=True)
            ]
            context = make_context(rows, self.options.device)
        else:
            self.batch.condense()
            update = self.batch.take_update()
        self._wait()
        start = time.perf_counter()
        with torch.inference_mode():
            if self.on_v2:
                for call in self.pending:
                    call()
                self.processor.apply_staged_writes()
                self.processor.apply(self.logits, context)
            else:
                self.processor.update_state(update)
                self.processor.apply(self.logits)
        self._wait()
        spent = time.perf_counter() - start
        self.pending = []
        for number, request in enumerate(self.requests):
            request.output_token_ids.append((number * 31 + request.total_len) % 1000)
        if self.on_v2:
            self.slots.commit_each(places, [request.output_token_ids[-1] for request in self.requests])
        return spent

    def _wait(self) -> None:
        if self.options.device == "cuda":
            torch.cuda.synchronize()


def typical(cls: Any, on_v2: bool, n: int, temperature: float, churn: bool, options: argparse.Namespace) -> float:
    """Microseconds per step."""
    bench = Bench(cls, on_v2, n, temperature, options)
    for _ in range(10):
        bench.step(churn)
    return 1e6 * statistics.quantiles([bench.step(churn) for _ in range(options.steps)], n=10)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    logging.getLogger("lpkit").setLevel(logging.ERROR)
    where = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    print(
        f"lpkit {lpkit.__version__}, torch {torch.__version__}, Python {platform.python_version()}, {where}, "
        f"{torch.get_num_threads()} threads, vocabulary {options.vocab}, {options.steps} steps, microseconds per step\n"
    )
    print("Each cell: V1 class on V1 / bridge on V2 / portable on V2.\n")
    print(f"| rule | step | {' | '.join(f'{n} rows' for n in ROWS)} |")
    print("|---|---|" + "---|" * len(ROWS))
    for rule, (old, bridged, new) in RULES.items():
        temperature = 0.8 if "0.8" in rule else 1.0
        for churn in (False, True):
            cells = []
            for n in ROWS:
                ways = ((old, False), (bridged, True), (new, True))
                times = [typical(cls, on_v2, n, temperature, churn, options) for cls, on_v2 in ways]
                cells.append(" / ".join(f"{value:,.0f}" for value in times))
            print(f"| {rule} | {'churn' if churn else 'steady'} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
