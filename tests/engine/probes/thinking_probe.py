"""vLLM's V2 kernel of the thinking budget, in a process of its own: a JSON job in, the forced tokens out."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

NAMES = ("reasoning_start", "natural_reasoning_end", "reasoning_end")


def main() -> None:
    jobs = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    from lpkit_conformance.engine.tiny import prepare

    prepare("v2")
    print(json.dumps([answer(job) for job in jobs]))


def answer(job: dict[str, Any]) -> list[list[int | None]]:
    """Per request and row the token whose logit the kernel raised."""
    import torch
    from vllm.v1.worker.gpu.sample.thinking_budget import apply_thinking_budget

    def ids(values: Any) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    requests = job["rows"]
    longest = max(len(item["known"]) for item in requests)
    known = ids([item["known"] + [0] * (longest - len(item["known"])) for item in requests])
    flat = [(slot, local) for slot, item in enumerate(requests) for local in range(len(item["drafts"]) + 1)]
    inputs = [[item["known"][-1], *item["drafts"]] for item in requests]
    logits = torch.zeros(len(flat), job["vocab_size"])
    empty = torch.full((len(requests),), -1, dtype=torch.int32)
    apply_thinking_budget(
        logits,
        torch.arange(len(requests)),
        torch.tensor([slot for slot, _ in flat]),
        ids([item["budget"] for item in requests]),
        known,
        ids([len(item["known"]) for item in requests]),
        ids([token for row in inputs for token in row]),
        ids([local for _, local in flat]),
        empty.clone(),
        empty.clone(),
        torch.zeros_like(empty),
        *(ids(job["markers"][f"{name}_token_ids"]) for name in NAMES),
    )
    found: list[list[int | None]] = [[] for _ in requests]
    for (slot, _), row in zip(flat, logits, strict=True):
        found[slot].append(int(row.argmax()) if bool((row == 1e9).any()) else None)
    return found


if __name__ == "__main__":
    main()
