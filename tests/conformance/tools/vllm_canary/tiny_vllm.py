"""A vLLM of a few lines, made up for the tests: every fact has the value that it has in ``RELEASE``."""

from __future__ import annotations

from dataclasses import replace

from lpkit_conformance.facts.vllm import VLLM
from vllm_canary import readers

RELEASE = (0, 33, 0)

KNOWN = replace(
    VLLM,
    rows=tuple(row for row in VLLM.rows if row.release <= RELEASE),
    facts={
        key: replace(fact, history=tuple(item for item in fact.history if item[0] <= RELEASE))
        for key, fact in VLLM.facts.items()
    },
)
"""The table of facts as it was when ``RELEASE`` was the newest release."""

INTERFACE = """
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from vllm import SamplingParams

class MoveDirectionality(Enum):
    UNIDIRECTIONAL = auto()
    SWAP = auto()

AddedRequest = tuple[int, SamplingParams, list[int] | None, list[int]]

@dataclass(frozen=True)
class BatchUpdate:
    batch_size: int
    removed: list
    added: list
    moved: list

class LogitsProcessor(ABC):
    @classmethod
    def validate_params(cls, sampling_params): ...
    @abstractmethod
    def __init__(self, vllm_config, device, is_pin_memory): ...
    @abstractmethod
    def apply(self, logits): ...
    @abstractmethod
    def is_argmax_invariant(self): ...
    @abstractmethod
    def update_state(self, batch_update): ...
    def _private(self, anything): ...
"""

LOADER = """
LOGITSPROCS_GROUP = "vllm.logits_processors"
BUILTIN_LOGITS_PROCESSORS: list = [MinTokensLogitsProcessor, LogitBiasLogitsProcessor, MinPLogitsProcessor]

def _load_logitsprocs_plugins():
    return [entry.load() for entry in entry_points(group=LOGITSPROCS_GROUP)]

def _load_logitsprocs_by_fqcns(given):
    for cls in given:
        if not issubclass(cls, LogitsProcessor):
            raise ValueError

def _load_custom_logitsprocs(given):
    if current_platform.is_tpu():
        return []
    return _load_logitsprocs_plugins() + _load_logitsprocs_by_fqcns(given)

def build_logitsprocs(vllm_config, device, is_pin_memory, is_pooling_model, custom_logitsprocs=()):
    if is_pooling_model:
        if custom_logitsprocs:
            raise ValueError
        return LogitsProcessors()
    if vllm_config.speculative_config:
        if custom_logitsprocs:
            raise ValueError
        return LogitsProcessors([MinTokensLogitsProcessor()])
    classes = _load_custom_logitsprocs(custom_logitsprocs)
    return LogitsProcessors(classes)

def validate_logits_processors_parameters(given, sampling_params): ...

class AdapterLogitsProcessor(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory): ...
    @abstractmethod
    def new_req_logits_processor(self, params): ...
    def _new_state(self, params, prompt_ids, output_ids):
        if req_lp := self.new_req_logits_processor(params):
            if len(inspect.signature(req_lp).parameters) == 3:
                if prompt_ids is None:
                    raise ValueError
                return partial(req_lp, prompt_ids, output_ids)
    def update_state(self, batch_update): ...
    def apply(self, logits): ...
"""

STATE = """
import torch
from vllm.v1.sample.logits_processor.interface import BatchUpdate

class BatchUpdateBuilder:
    def __init__(self, removed=None, added=None, moved=None):
        self._rows, self._read, self.added, self.moved, self.batch_changed = [], False, [], [], False

    @property
    def removed(self):
        self._read = True
        self._rows.sort(reverse=True)
        return self._rows

    def removed_append(self, index):
        if self._read:
            raise RuntimeError("too late")
        self._rows.append(index)

    def has_removed(self):
        return len(self._rows) > 0

    def peek_removed(self):
        return min(self.removed) if self._rows else None

    def pop_removed(self):
        return self.removed.pop(-1) if self._rows else None

    def reset(self): ...

    def get_and_reset(self, batch_size):
        rows, added, moved = self._rows, self.added, self.moved
        self.__init__()
        if not (rows or added or moved):
            return None
        return BatchUpdate(batch_size=batch_size, removed=rows, added=added, moved=moved)
"""

BUILTIN = """
import torch
from vllm.utils.torch_utils import anything
from vllm.v1.sample.logits_processor.interface import MoveDirectionality

def process_dict_updates(req_entries, batch_update, new_state):
    if batch_update is None:
        return False
    updated = False
    for index, params, prompt, output in batch_update.added:
        made = new_state(params, prompt, output)
        if made is None:
            updated |= req_entries.pop(index, None) is not None
        else:
            req_entries[index] = made
            updated = True
    for index in batch_update.removed:
        updated |= bool(req_entries.pop(index, None))
    for source, target, kind in batch_update.moved:
        moving, there = req_entries.pop(source, None), req_entries.pop(target, None)
        updated |= moving is not None or there is not None
        if moving is not None:
            req_entries[target] = moving
        if there is not None and kind == MoveDirectionality.SWAP:
            req_entries[source] = there
    return updated
"""

SAMPLER = """
class Sampler(nn.Module):
    def forward(self, logits, sampling_metadata):
        if sampling_metadata.max_num_logprobs is not None:
            raw = self.compute_logprobs(logits)
        logits = logits.to(torch.float32)
        logits = self.apply_logits_processors(logits, sampling_metadata)
        return self.sample(logits, sampling_metadata)

    def apply_logits_processors(self, logits, sampling_metadata):
        if sampling_metadata.allowed_token_ids_mask is not None:
            logits.masked_fill_(sampling_metadata.allowed_token_ids_mask, -inf)
        if sampling_metadata.bad_words:
            apply_bad_words(logits, sampling_metadata.bad_words)
        for processor in sampling_metadata.logitsprocs.non_argmax_invariant:
            logits = processor.apply(logits)
        logits = self.apply_penalties(logits, sampling_metadata)
        if holder is not None:
            logits = holder.apply_to_logits(logits)
        return logits

    @staticmethod
    def apply_penalties(logits, sampling_metadata):
        return apply_all_penalties(logits)

    def sample(self, logits, sampling_metadata):
        greedy = self.greedy_sample(logits)
        logits = self.apply_temperature(logits, sampling_metadata.temperature)
        for processor in sampling_metadata.logitsprocs.argmax_invariant:
            logits = processor.apply(logits)
        return self.topk_topp_sampler(logits)
"""

V2_INTERFACE = """
class LogitsProcRequestState:
    device: object
    max_num_reqs: int
    vocab_size: int
    all_token_ids: object
    prompt_len: object
    prefill_len: object
    total_len: object

class LogitsContext:
    expanded_idx_mapping: object
    idx_mapping: object
    idx_mapping_np: object
    expanded_local_pos: object
    input_ids: object
    pos: object
    seq_lens_upper_bound_np: object

class LogitsProcessor(ABC):
    def __init__(self, vllm_config, req_states): ...
    @classmethod
    def validate_params(cls, sampling_params): ...
    def add_request(self, req_idx, sampling_params): ...
    def apply_staged_writes(self): ...
    @abstractmethod
    def apply(self, logits, ctx): ...
"""

V2_LOADER = """
LOGITSPROCS_GROUP = "vllm.logits_processors"

def _load_v2_logitsprocs_plugins():
    for entry in entry_points(group=LOGITSPROCS_GROUP):
        if not issubclass(entry.load(), LogitsProcessor):
            raise ValueError

def _load_v2_logitsprocs_by_fqcns(given):
    for cls in given:
        if not issubclass(cls, LogitsProcessor):
            raise ValueError
"""

V2_SAMPLER = """
class Sampler:
    def __init__(self, custom_logits_processors=()):
        self.logits_processors: list = [logit_bias_state, self.penalties_state, bad_words, *custom_logits_processors]

    def apply_sampling_params(self, logits, ctx, skip):
        if not np.any(self.needed):
            return logits
        logits = torch.empty_like(logits, dtype=torch.float32).copy_(logits)
        for processor in self.logits_processors:
            logits = processor.apply(logits, ctx)
        self.thinking_budget_state.apply(logits, ctx)
        self.sampling_states.apply_temperature(logits)
        self.sampling_states.apply_min_p(logits)
        if skip:
            return logits
        return self.sampling_states.apply_top_k_top_p(logits)
"""

CONFIG = """
class VllmConfig:
    def __post_init__(self):
        if self.scheduler_config.async_scheduling:
            pass
        elif self.scheduler_config.async_scheduling is None:
            self.scheduler_config.async_scheduling = True

    @property
    def use_v2_model_runner(self):
        if self.attention_config.hisparse_config is not None:
            if envs.VLLM_USE_V2_MODEL_RUNNER is False:
                raise ValueError("remove it")
            return True
        if getattr(self, "watermark_config", None) is not None:
            if envs.VLLM_USE_V2_MODEL_RUNNER is False:
                logger.info_once("overridden")
            return True
        if envs.VLLM_USE_V2_MODEL_RUNNER is not None:
            return envs.VLLM_USE_V2_MODEL_RUNNER
        if not HAS_TRITON:
            return False
        if self._get_v2_model_runner_unsupported_features():
            return False
        return True

    def _get_v2_model_runner_unsupported_features(self):
        'What V2 lacks.'
        unsupported: list[str] = []
        speculative_config = self.speculative_config
        if self.distributed_executor_backend == "external_launcher" and self.pipeline_parallel_size > 1:
            unsupported.append("pipeline parallelism with external_launcher")
        if speculative_config is not None:
            if speculative_config.method in ("suffix", "custom_class"):
                unsupported.append(f"speculative method '{speculative_config.method}'")
            if speculative_config.parallel_drafting and speculative_config.method not in ("dflash", "dspark"):
                unsupported.append("parallel drafting for EAGLE speculative decoding")
            if getattr(speculative_config, "use_heterogeneous_vocab", False):
                unsupported.append("heterogeneous-vocabulary draft models")
        if self.parallel_config.use_ubatching:
            unsupported.extend(self._get_dbo_unsupported_features())
        return unsupported

    def _get_v1_model_runner_unsupported_features(self):
        unsupported = []
        if self.prefill_context_parallel_size > 1:
            unsupported.append("prefill context parallel")
        if self.pipeline_parallel_size > 1 and self.scheduler_config.async_scheduling:
            unsupported.append("pipeline parallelism with async scheduling")
        if self.speculative_config:
            if self.speculative_config.method == "dspark":
                unsupported.append("dspark speculative decoding")
            elif self.speculative_config.is_xpress():
                unsupported.append("xpress speculative decoding")
            if self.speculative_config.enable_adaptive_verification:
                unsupported.append("adaptive draft verification")
            if self.speculative_config.draft_lm_head_quantization is not None:
                unsupported.append("draft lm_head quantization")
        if speculative_config and "ParseAuxMTPModel" in (draft_config.architectures or []):
            unsupported.append("Parse 3.5 MTP")
        if self._dflash_needs_multi_kv_group():
            unsupported.append("mixed sliding/full dflash drafts")
        if self._is_dflash_candidate_draft():
            unsupported.append("DFlash candidate-head drafts")
        if self.model_config is not None and self.model_config.is_diffusion:
            unsupported.append("diffusion models")
        if self.enable_batch_sharded_sampling:
            unsupported.append("batch-sharded sampling")
        if self.architecture in ("Step5ForCausalLM", "Step5ForConditionalGeneration"):
            unsupported.append("Step5")
        return unsupported

    def _get_dbo_unsupported_features(self):
        if envs.VLLM_USE_V2_MODEL_RUNNER is None:
            return ["dual batch overlap"]
        unsupported = []
        if self.lora_config is not None:
            unsupported.append("dual batch overlap with LoRA")
        if self.speculative_config is not None:
            unsupported.append("dual batch overlap with speculative decoding")
        if self.pipeline_parallel_size > 1:
            unsupported.append("dual batch overlap with pipeline parallelism")
        if self.decode_context_parallel_size > 1 or self.prefill_context_parallel_size > 1:
            unsupported.append("dual batch overlap with context parallelism")
        if self.model_config.is_multimodal_model or self.model_config.is_encoder_decoder:
            unsupported.append("dual batch overlap with multimodal models")
        if self.model_config.is_hybrid:
            unsupported.append("dual batch overlap with hybrid models")
        if self.compilation_config.cudagraph_mode == CUDAGraphMode.PIECEWISE:
            unsupported.append("dual batch overlap with PIECEWISE CUDA graphs")
        if self.is_mm_encoder_only:
            unsupported.append("dual batch overlap with encoder only models")
        return unsupported

    def _verify_sampling_replay_config(self):
        if not self.use_v2_model_runner:
            raise ValueError("this requires Model Runner V2")
        if self.model_config.logits_processors:
            raise ValueError("this does not support custom logits processors")

    def _verify_trace_replay_config(self):
        if not self.use_v2_model_runner:
            raise ValueError("that requires Model Runner V2")
"""

ENVS = """
def maybe_convert_bool(value):
    if value is None:
        return None
    return bool(int(value))

environment_variables = {
    "VLLM_USE_V2_MODEL_RUNNER": lambda: maybe_convert_bool(os.getenv("VLLM_USE_V2_MODEL_RUNNER", None)),
}
"""

SPECULATIVE = """
RejectionSampleMethod = Literal["standard", "synthetic", "block", "fly"]

class SpeculativeConfig:
    rejection_sample_method: RejectionSampleMethod = "standard"
"""

FILES = {
    readers.INTERFACE: INTERFACE,
    readers.LOADER: LOADER,
    readers.BUILTIN: BUILTIN,
    readers.STATE: STATE,
    readers.V2_INTERFACE: V2_INTERFACE,
    readers.V2_LOADER: V2_LOADER,
    readers.CONFIG: CONFIG,
    readers.SPECULATIVE: SPECULATIVE,
    readers.ENVS: ENVS,
    readers.BATCH: "class CachedRequestState:\n    prompt_token_ids: list[int] | None\n",
    readers.RUNNER: "batch = InputBatch(logitsprocs_need_output_token_ids=bool(custom_logitsprocs))\n"
    "batch = InputBatch(logitsprocs_need_output_token_ids=self.input_batch.logitsprocs_need_output_token_ids)\n",
    readers.SCHEDULER: "class SchedulerConfig:\n    async_scheduling: bool | None = None\n",
    readers.CPU: "def check(vllm_config):\n    scheduler_config.async_scheduling = False\n",
    readers.EXCEPTIONS: "class VLLMError(Exception): ...\nclass VLLMValidationError(VLLMError): ...\n",
    "vllm/v1/engine/input_processor.py": "def check(self):\n    self.validate_logits_processors_params(params)\n",
    "vllm/v1/sample/sampler.py": SAMPLER,
    "vllm/v1/worker/gpu/sample/sampler.py": V2_SAMPLER,
}
