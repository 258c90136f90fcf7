"""Raw V1 processors that add ``bias`` to token 5: a correct processor, and processors with one defect each."""

import torch
from lpkit import v1


class Good(v1.LogitsProcessor):
    @classmethod
    def validate_params(cls, params):
        bias = (params.extra_args or {}).get("bias")
        if bias is not None and (type(bias) not in (int, float) or not abs(bias) < 1e6):
            raise ValueError("bias must be a finite number")

    def __init__(self, vllm_config, device, is_pin_memory):
        self.biases = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        v1.process_dict_updates(self.biases, batch_update, lambda params, _, __: (params.extra_args or {}).get("bias"))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, bias in self.biases.items():
            logits[row, 5] += bias
        return logits


class ForgetsToReplace(Good):
    """State of a request that was replaced goes on."""

    def update_state(self, batch_update):
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.biases.pop(row, None)
        for row, params, _, _ in batch_update.added:
            bias = (params.extra_args or {}).get("bias")
            if bias is not None:
                self.biases[row] = bias
        moves = v1.BatchUpdate(batch_update.batch_size, [], [], batch_update.moved)
        v1.process_dict_updates(self.biases, moves, lambda *_: None)


class TrustsItsArguments(Good):
    """Accepts what explodes in the middle of a batch, with a message of several lines."""

    @classmethod
    def validate_params(cls, params):
        pass

    def apply(self, logits):
        for row, bias in self.biases.items():
            if not isinstance(bias, float):
                raise TypeError("first line\nsecond \x1b[31mline\x00 <&>")
            logits[row, 5] += bias
        return logits
