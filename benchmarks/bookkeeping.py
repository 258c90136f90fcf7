"""The portable base's bookkeeping on V1 against vLLM's ``process_dict_updates``, on the same batch updates.

    python benchmarks/bookkeeping.py [--batch 1024] [--steps 300] [--churn 0.1] [--json FILE]

Run it where vLLM is installed; elsewhere lpkit's equal of vLLM's helper stands in, and the output says so. Each line
is one share of requests that use the plugin. In every step a part of the batch leaves, as many come, the gaps are
closed by moves, and two rows are swapped. Both sides get every update in turn, the order changing from step to step;
each number is the median over the steps, in microseconds per step.

Next to the time of the whole ``update_state`` stands how much of it is admission: parsing and validating parameters,
resetting the slot and the author's ``admit``. It is paid once in a request's life; vLLM's helper does nothing like it.
The last table says what admitting one request takes, least of many rounds: of this file's plugin and of reference
plugins, whose requests ask for one of a few settings, or each for its own.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lpkit
import torch
from lpkit import v1
from lpkit.runtime import Request, V1Batch, make_config
from lpkit.sampling_params import SamplingParams
from plugins_here import load

SHARES = {"none": 0.0, "few (1 in 100)": 0.01, "half": 0.5, "all": 1.0}
VALUES = (0.5, 0.7, 1.0, 1.5, 2.0)
"""People have their favourites."""

CPU = torch.device("cpu")
BATCH = 1024
ROUNDS = 100

Parts = dict[str, float]


class Scale(lpkit.LogitsProcessor):
    """A plugin with one parameter and one column, the usual kind."""

    class Params(lpkit.Params, prefix="scale_"):
        by: float = lpkit.Field(ge=0.0, le=10.0)

    by = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.by[request.slot] = request.params.by
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.mul_(self.by[rows].unsqueeze(1))


class ByHelper:
    """The same bookkeeping as vLLM's own processors do it: a dict from rows to values."""

    def __init__(self) -> None:
        self.entries: dict[int, float] = {}

    def update_state(self, update: v1.BatchUpdate | None) -> None:
        v1.process_dict_updates(self.entries, update, self.new_state)

    @staticmethod
    def new_state(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> float | None:
        return params.extra_args.get("scale_by") if params.extra_args else None


def updates(batch: int, steps: int, churn: float, share: float, seed: int) -> Iterator[v1.BatchUpdate]:
    """Batch updates of a full batch; the first one fills it."""
    rng = random.Random(seed)
    rows = V1Batch(batch)
    names: list[str] = []
    count = 0

    def enter(number: int) -> None:
        nonlocal count
        for _ in range(number):
            args = {"scale_by": rng.choice(VALUES)} if rng.random() < share else None
            request = Request(f"r{count}", SamplingParams(temperature=0.8, extra_args=args), [1, 2, 3])
            rows.add(request)
            names.append(request.request_id)
            count += 1

    enter(batch)
    for _ in range(steps):
        update = rows.take_update()
        assert update is not None
        yield update
        # Fewer come than leave, then more: so that there are gaps to close, and rows behind the end to fill.
        leaving = rng.sample(names, max(1, int(churn * batch)))
        for name in leaving:
            rows.remove(name)
            names.remove(name)
        room = batch - len(rows)
        enter(rng.randint(room // 2, room))
        rows.condense()
        if len(rows) > 1:
            rows.swap(*rng.sample(range(len(rows)), 2))


def timed(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e6


def measure(share: float, batch: int, steps: int, churn: float, seed: int = 0) -> dict[str, float]:
    """Microseconds per step; medians."""
    plugin = Scale(make_config(max_num_seqs=batch, vocab_size=512), CPU, False)
    helper = ByHelper()
    watched = Scale(make_config(max_num_seqs=batch, vocab_size=512), CPU, False)
    seen: dict[str, list[float]] = {"vllm": [], "lpkit": [], "admission": []}
    sides = [("vllm", helper.update_state), ("lpkit", plugin.update_state)]
    with torch.inference_mode():
        for number, update in enumerate(updates(batch, steps + 1, churn, share, seed)):
            for name, call in sides if number % 2 else reversed(sides):
                taken = timed(functools.partial(call, update))
                if number:
                    seen[name].append(taken)
        # In a separate pass: a third side would push the other two out of the processor's cache.
        for number, update in enumerate(updates(batch, steps + 1, churn, share, seed)):
            asked: list[Any] = []
            watched._v1._ledger.update(update, lambda *arguments, asked=asked: not asked.append(arguments))  # type: ignore[union-attr]
            taken = timed(functools.partial(each, watched._admission.admit, asked))
            watched._admission.flush()
            if number:
                seen["admission"].append(taken)
    found = {name: statistics.median(values) for name, values in seen.items()}
    found["ratio"] = statistics.median(a / b for a, b in zip(seen["lpkit"], seen["vllm"], strict=True))
    return found


def each(call: Callable[..., object], asked: list[Any]) -> None:
    for arguments in asked:
        call(*arguments)


def settings(rng: random.Random, own: bool) -> dict[str, tuple[Any, list[dict[str, Any]]]]:
    """Plugins by name, and what their requests ask for: one of five settings, or each its own."""
    kinds = range(BATCH if own else len(VALUES))
    lists = [(rng.sample(range(512), 4), [rng.uniform(-5.0, 5.0) for _ in range(4)]) for _ in kinds]
    return {
        "this file's": (Scale, [{"scale_by": rng.uniform(0.5, 2.0) if own else VALUES[n]} for n in kinds]),
        "lpkit-min-p": (
            load("lpkit_min_p:MinP"),
            [{"min_p_threshold": rng.uniform(0.01, 0.2) if own else VALUES[n] / 10} for n in kinds],
        ),
        "lpkit-logit-bias": (
            load("lpkit_logit_bias:LogitBias"),
            [{"logit_bias_ids": list(ids), "logit_bias_values": list(values)} for ids, values in lists],
        ),
    }


def one_admission(cls: Any, asked: list[dict[str, Any]]) -> Parts:
    """Nanoseconds, by part."""
    plugin = cls(make_config(max_num_seqs=BATCH, vocab_size=512), CPU, False)
    chosen = [SamplingParams(temperature=0.8, extra_args=dict(asked[n % len(asked)])) for n in range(BATCH)]
    args = [(params.extra_args,) for params in chosen]
    requests = [(lpkit.Request(n, cls.Params.parse(one.extra_args), one, None),) for n, one in enumerate(chosen)]
    calls = {
        "all": functools.partial(each, plugin._admission.admit, [(n, one, None) for n, one in enumerate(chosen)]),
        "parameters": functools.partial(each, cls.Params.parse, args),
        "author": functools.partial(each, plugin.admit, requests),
    }
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], timed(call) / BATCH * 1e3)
            plugin.apply_staged_writes()
    return best


def repeat(update_state: Callable[[None], object]) -> None:
    for _ in range(1000):
        update_state(None)


def idle(batch: int) -> dict[str, float]:
    """A step that changes nothing: nanoseconds."""
    plugin, helper = Scale(make_config(max_num_seqs=batch, vocab_size=512), CPU, False), ByHelper()
    first = next(updates(batch, 1, 0.0, 1.0, 0))
    plugin.update_state(first)
    helper.update_state(first)
    found = {}
    for name, call in (("vllm", helper.update_state), ("lpkit", plugin.update_state)):
        found[name] = min(timed(functools.partial(repeat, call)) for _ in range(20))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--churn", type=float, default=0.1, help="share of the batch that leaves in each step")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    whose = v1.process_dict_updates.__module__
    print(f"{options.batch} requests, {options.churn:.0%} leave per step; process_dict_updates of {whose}")
    print(f"{'requests that use it':22}{'helper us':>10}{'lpkit us':>10}{'ratio':>8}{'of it admission us':>20}")
    report: dict[str, Any] = {"helper": whose, "batch": options.batch, "churn": options.churn, "shares": {}}
    for name, share in SHARES.items():
        found = measure(share, options.batch, options.steps, options.churn)
        report["shares"][name] = found
        print(f"{name:22}{found['vllm']:10.1f}{found['lpkit']:10.1f}{found['ratio']:8.2f}{found['admission']:20.1f}")
    report["idle"] = found = idle(options.batch)
    print(f"no change, ns: helper {found['vllm']:.0f}, lpkit {found['lpkit']:.0f}")
    print(f"{'one admission, ns':35}{'all':>8}{'parameters':>12}{'author':>8}")
    for own in (False, True):
        for name, (cls, asked) in settings(random.Random(0), own).items():
            label = f"{name}, {'each its own' if own else 'few settings'}"
            report.setdefault("admission", {})[label] = found = one_admission(cls, asked)
            print(f"{label:35}{found['all']:8.0f}{found['parameters']:12.0f}{found['author']:8.0f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
