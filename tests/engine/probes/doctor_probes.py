"""A V1 processor that reads token ids, and writes down whether what it reads is a placeholder."""

from __future__ import annotations

from typing import Any

from vllm.v1.sample.logits_processor import LogitsProcessor

SEEN: list[bool] = []


class Reader(LogitsProcessor):
    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.outputs: dict[int, list[int]] = {}
        self.last: dict[int, list[int]] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        if batch_update is not None:
            for index, _, _, output in batch_update.added:
                self.outputs[index] = output
                self.last[index] = output[-1:]

    def apply(self, logits: Any) -> Any:
        SEEN.extend(-1 in output for output in self.outputs.values() if output)
        return logits


def seen(engine: Any) -> list[bool]:
    return SEEN
