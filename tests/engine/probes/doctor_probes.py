"""A V1 processor that reads token ids, and writes down whether what it reads is a placeholder; vLLM's configuration."""

from __future__ import annotations

import os
from typing import Any

from vllm.engine.arg_utils import EngineArgs
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


def seen() -> list[bool]:
    return SEEN


def configured(switch: str, arguments: dict[str, Any]) -> bool:
    """vLLM's asynchronous scheduling under this value of the switch. Raises what keeps vLLM from starting."""
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = switch
    config = EngineArgs(skip_tokenizer_init=True, enforce_eager=True, **arguments).create_engine_config()
    return bool(config.scheduler_config.async_scheduling)


def _parser() -> Any:
    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser())


def options() -> dict[str, list[str]]:
    """All options of ``vllm serve``, with the values that are allowed if they are known."""
    actions = _parser()._actions
    long = [(name, action) for action in actions for name in action.option_strings if name.startswith("--")]
    return {name: [*(action.choices or ())] for name, action in long}


def accepts(words: list[str]) -> bool:
    """True if the parser of ``vllm serve`` takes these options."""
    try:
        _parser().parse_args(["--model", "m", *words])
    except SystemExit:
        return False
    return True
