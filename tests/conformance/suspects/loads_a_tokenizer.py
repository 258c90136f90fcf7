"""Processors that look for tokens by their text, as guides for formats and thinking budgets do."""

from bias import Good
from vllm.logger import init_logger, logger
from vllm.tokenizers import cached_tokenizer_from_config, get_tokenizer
from vllm.triton_utils import tl, triton
from vllm.utils.gpu_sync_debug import gpu_sync_allowed
from vllm.v1.sample.logits_processor import BUILTIN_LOGITS_PROCESSORS, _load_custom_logitsprocs  # noqa: F401


@triton.jit
def kernel(pointer, size: tl.constexpr):
    """Never launched without a GPU."""


class FindsItsToken(Good):
    def __init__(self, vllm_config, device, is_pin_memory):
        super().__init__(vllm_config, device, is_pin_memory)
        model = vllm_config.model_config
        options = {"tokenizer_mode": model.tokenizer_mode, "revision": model.tokenizer_revision}
        tokenizer = get_tokenizer(model.tokenizer, **options)
        (self.token,) = tokenizer.encode("a", add_special_tokens=False)
        assert tokenizer.decode([self.token]) == "a"
        assert len(tokenizer) == model.get_vocab_size()
        assert tokenizer.eos_token_id == model.hf_config.eos_token_id
        assert cached_tokenizer_from_config(model).get_vocab() == tokenizer.get_vocab()
        init_logger(__name__).warning_once("found %s", self.token)
        logger.info_once("found")

    def apply(self, logits):
        with gpu_sync_allowed():
            for row, bias in self.biases.items():
                logits[row, self.token] += bias
        return logits


class StartsAnEngine(Good):
    def __init__(self, vllm_config, device, is_pin_memory):
        super().__init__(vllm_config, device, is_pin_memory)
        from vllm import LLM

        LLM(model=vllm_config.model_config.model)


class ImportsMoreInItsConstructor(Good):
    def __init__(self, vllm_config, device, is_pin_memory):
        super().__init__(vllm_config, device, is_pin_memory)
        import vllm.distributed  # noqa: F401


class ReadsMoreInApply(Good):
    def apply(self, logits):
        import vllm

        return vllm.envs.SOMETHING
