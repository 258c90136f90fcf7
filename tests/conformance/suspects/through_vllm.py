"""Third-party processors as they are written: against vLLM's own modules, without lpkit."""

import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.logger import init_logger
from vllm.v1.sample.logits_processor import (
    AdapterLogitsProcessor,
    BatchUpdate,
    LogitsProcessor,
    MoveDirectionality,
)
from vllm.v1.worker.gpu.buffer_utils import UvaBackedTensor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as LogitsProcessorV2

logger = init_logger(__name__)


def bias_of(params: SamplingParams):
    return (params.extra_args or {}).get("bias")


class RawV1(LogitsProcessor):
    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool):
        self.biases: dict[int, float] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.biases.pop(row, None)
        for row, params, _, _ in batch_update.added:
            self.biases.pop(row, None)
            if bias_of(params) is not None:
                self.biases[row] = bias_of(params)
        for source, target, direction in batch_update.moved:
            first, second = self.biases.pop(source, None), self.biases.pop(target, None)
            if first is not None:
                self.biases[target] = first
            if direction == MoveDirectionality.SWAP and second is not None:
                self.biases[source] = second

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, bias in self.biases.items():
            logits[row, 5] += bias
        return logits


class RawV2(LogitsProcessorV2):
    def __init__(self, vllm_config: VllmConfig, req_states):
        self.req_states = req_states
        self.bias = UvaBackedTensor(req_states.max_num_reqs, dtype=torch.float32)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        bias = bias_of(sampling_params)
        self.bias.np[req_idx] = bias or 0.0
        return bias is not None

    def apply_staged_writes(self) -> None:
        self.bias.copy_to_uva()

    def apply(self, logits: torch.Tensor, ctx) -> torch.Tensor:
        logits[:, 5] += self.bias.gpu[ctx.expanded_idx_mapping.long()]
        return logits


class Wrapped(AdapterLogitsProcessor):
    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams):
        bias = bias_of(params)
        if bias is None:
            return None

        def after_the_same_token(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if output_ids:
                logits[output_ids[-1]] += bias
            return logits

        return after_the_same_token
