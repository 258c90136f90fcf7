"""Rules about repetitions, on texts without and with them, beside the loop over requests that is usually written.

    python benchmarks/repetitive_text.py [--batch 8] [--context 1024]

*Random*: of four times as many tokens as the text is long, so few repeat. *Looping*: one span of 16 tokens, over and
over, which is what such rules are for. ``apply`` on V1, on a CPU, the least of several calls, 32,000 tokens.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import rowwise
import torch
from lpkit.runtime import Request, make_config
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.hosts.v1 import V1Driver
from plugins_here import load
from reference_alternatives import Arguments, row_by_row

CPU = torch.device("cpu")
VOCAB = 32_000
SPAN = 16
ROUNDS = 7

RULES: dict[str, tuple[str, Callable[[Arguments], rowwise.Row], dict[str, Any]]] = {
    "lpkit-dry": ("lpkit_dry.processor:Dry", rowwise.dry, {"dry_multiplier": 0.8}),
    "lpkit-loop-breaker": (
        "lpkit_loop_breaker.processor:LoopBreaker",
        rowwise.loop_breaker,
        {"loop_times": 3, "loop_tokens": 64, "loop_penalty": 5.0},
    ),
    "lpkit-no-repeat-ngram": (
        "lpkit_no_repeat_ngram.processor:NoRepeatNgram",
        rowwise.no_repeat_ngram,
        {"no_repeat_ngram_size": 3},
    ),
}


def texts(batch: int, length: int, looping: bool) -> list[list[int]]:
    drawn = torch.Generator().manual_seed(0)
    period = SPAN if looping else length
    spans = torch.randint(4 * length, (batch, period), generator=drawn)
    return spans.repeat(1, -(-length // period))[:, :length].tolist()  # type: ignore[no-any-return]


def least(cls: Any, arguments: dict[str, Any], outputs: list[list[int]], logits: torch.Tensor) -> float:
    """Milliseconds of one ``apply``."""
    config = make_config(max_num_seqs=len(outputs), vocab_size=VOCAB, max_model_len=2 * len(outputs[0]) + 1, device=CPU)
    driver = V1Driver(cls, config, CPU)
    params = SamplingParams(temperature=1.0, extra_args=arguments)
    driver.begin(entering=[Request(f"r{n}", params, [1], output_token_ids=list(ids)) for n, ids in enumerate(outputs)])
    best = float("inf")
    with torch.inference_mode():
        for _ in range(ROUNDS):
            fresh = logits.clone()
            began = time.perf_counter()
            driver.edit(fresh)
            best = min(best, (time.perf_counter() - began) * 1e3)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logits = torch.randn(options.batch, VOCAB)
    print(f"{options.batch} requests, {options.context} tokens of output\n")
    print("| plugin | random | request by request | looping | request by request |\n|---|---:|---:|---:|---:|")
    for name, (target, rule, arguments) in RULES.items():
        cells = []
        for looping in (False, True):
            outputs = texts(options.batch, options.context, looping)
            for cls in (load(target), row_by_row(rule, arguments)[1]):
                cells.append(f"{least(cls, arguments, outputs, logits):.2f} ms")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
