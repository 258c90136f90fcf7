"""What an export costs: the host over the plain V1 face, and ``generate`` with ours and with transformers' own rule.

    python benchmarks/export_transformers.py [--vocab 32000] [--repeat 7]

Numbers are CPU time of the process in one thread, the least of all repetitions, turn by turn, so that a machine that
others use says much the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import lpkit.export
import torch
import transformers
from lpkit.export.host import ExportHost, configuration, sampling_params
from lpkit.history.on_host import V1Row
from lpkit.v1 import BatchUpdate
from plugins_here import load

MinP, Penalties = load("lpkit_min_p:MinP"), load("lpkit_penalties:Penalties")
CPU = torch.device("cpu")
PROMPT, STEPS = 256, 24


def rows_of(cls: type[Any], arguments: dict[str, Any], n: int) -> list[V1Row]:
    params = sampling_params(cls, arguments)
    return [V1Row(params, [(7 * i + j) % 997 for j in range(PROMPT)], []) for i in range(n)]


def plain(cls: type[Any], arguments: dict[str, Any], logits: torch.Tensor) -> float:
    """Seconds per step of the V1 face, driven as an engine does."""
    processor = cls(configuration(logits.shape[1], CPU, len(logits)), CPU, False)
    rows = rows_of(cls, arguments, len(logits))
    added = [(i, row.params, row.prompt_ids, row.output_ids) for i, row in enumerate(rows)]
    processor.update_state(BatchUpdate(len(rows), [], added, []))
    processor.apply(logits.clone())
    began = time.process_time()
    for step in range(STEPS):
        for row in rows:
            row.output_ids.append(step)
        processor.update_state(None)
        processor.apply(logits.clone())  # as the host does, which leaves the engine's scores alone
    return (time.process_time() - began) / STEPS


def hosted(cls: type[Any], arguments: dict[str, Any], logits: torch.Tensor) -> float:
    """Seconds per step of the host."""
    host = ExportHost(cls, logits.shape[1], CPU)
    rows = rows_of(cls, arguments, len(logits))
    host.process(logits, rows)
    began = time.process_time()
    for step in range(STEPS):
        for row in rows:
            row.output_ids.append(step)
        host.process(logits, rows)
    return (time.process_time() - began) / STEPS


def exported(cls: type[Any], arguments: dict[str, Any], logits: torch.Tensor) -> float:
    """Seconds per step of the processor that ``generate`` is given, which finds rows by their tokens."""
    processor = lpkit.export.transformers(cls, arguments)
    ids = torch.tensor([row.prompt_ids for row in rows_of(cls, arguments, len(logits))])
    texts = [torch.cat([ids, torch.full((len(logits), n), 5)], dim=1) for n in range(STEPS + 1)]
    processor(texts[0], logits)
    began = time.process_time()
    for text in texts[1:]:
        processor(text, logits)
    return (time.process_time() - began) / STEPS


def least(repeat: int, *sides: Callable[[], float]) -> list[float]:
    """The best of each side, in turns."""
    turns = [[side() for side in sides] for _ in range(repeat)]
    return [min(times) for times in zip(*turns, strict=True)]


def generated(model: Any, rows: int, options: dict[str, Any]) -> float:
    """Seconds per token of a row."""
    prompts = torch.arange(rows * 32).reshape(rows, 32) % 997
    began = time.process_time()
    model.generate(prompts, max_new_tokens=48, do_sample=False, pad_token_id=0, eos_token_id=None, **options)
    return (time.process_time() - began) / 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| rule | rows | V1 face | host | in transformers |\n|---|---:|---:|---:|---:|")
    for cls, arguments in ((MinP, {"threshold": 0.1}), (Penalties, {"repetition": 1.3})):
        for n in (1, 8, 64):
            logits = torch.randn(n, options.vocab) * 3
            sides = [
                lambda side=side, cls=cls, arguments=arguments, logits=logits: side(cls, arguments, logits)
                for side in (plain, hosted, exported)
            ]
            times = least(options.repeat, *sides)
            print(f"| {cls.__name__} | {n} | {' | '.join(f'{1e6 * value:,.0f} us' for value in times)} |")
    config = transformers.LlamaConfig(
        vocab_size=options.vocab, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    print("\n| generate | rows | without | transformers' own | exported |\n|---|---:|---:|---:|---:|")
    for name, rows, beams in (("greedy", 1, 1), ("greedy", 8, 1), ("greedy", 64, 1), ("4 beams", 8, 4)):
        theirs = {"repetition_penalty": 1.3}
        ours = {"logits_processor": [lpkit.export.transformers(Penalties, repetition=1.3)]}
        sides = [
            lambda extra=extra, rows=rows, beams=beams: generated(model, rows, {"num_beams": beams, **extra})
            for extra in ({}, theirs, ours)
        ]
        times = least(max(3, options.repeat // 2), *sides)
        print(f"| {name} | {rows} | {' | '.join(f'{rows / value:,.0f}' for value in times)} |")


if __name__ == "__main__":
    main()
