"""What lpkit takes the facts to be: each from the release on at which it changed. A canary run compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vllm_canary.releases import Release

FIRST: Final[Release] = (0, 10, 1)
"""The first release with processor plugins on the V1 engine."""

HISTORY: Final[dict[str, tuple[tuple[Release, str], ...]]] = {
    "v1-members": (
        ((0, 10, 1), "__init__(vllm_config, device, is_pin_memory)*, apply(logits)*, is_argmax_invariant()*, "
         "update_state(batch_update)*"),
        ((0, 11, 1), "__init__(vllm_config, device, is_pin_memory)*, apply(logits)*, is_argmax_invariant()*, "
         "update_state(batch_update)*, validate_params(sampling_params)"),
    ),
    "v1-update": (
        ((0, 10, 1), "batch_size, removed, moved, added"),
        ((0, 10, 2), "batch_size, removed, added, moved"),
    ),
    "v1-added": (
        ((0, 10, 1), "index, params, prompt, output"),
        ((0, 11, 0), "index, params, prompt or None, output"),
    ),
    "v1-moves": (
        ((0, 10, 1), "UNIDIRECTIONAL = 1, SWAP = 2"),
    ),
    "v1-builder": (
        ((0, 10, 1), "__init__(removed, moved, added), get_and_reset(batch_size), has_removed(), "
         "peek_removed(), pop_removed(), removed, removed_append(index)"),
        ((0, 10, 2), "__init__(removed, moved, added), get_and_reset(batch_size), has_removed(), "
         "peek_removed(), pop_removed(), removed, removed_append(index), reset()"),
        ((0, 11, 0), "__init__(removed, added, moved), get_and_reset(batch_size), has_removed(), "
         "peek_removed(), pop_removed(), removed, removed_append(index), reset()"),
    ),
    "v1-helper": (
        ((0, 10, 1), "-"),
        ((0, 10, 2), "req_entries, batch_update, new_state"),
    ),
    "v1-behaviour": (
        ((0, 10, 1), "as lpkit's"),
    ),
    "v1-adapter": (
        ((0, 10, 1), "-"),
        ((0, 10, 2), "__init__(vllm_config, device, is_pin_memory), apply(logits), "
         "new_req_logits_processor(params)*, update_state(batch_update)"),
    ),
    "v1-adapter-prompt": (
        ((0, 10, 1), "-"),
        ((0, 10, 2), "3 parameters"),
        ((0, 18, 0), "3 parameters; raises without a prompt"),
    ),
    "v1-builtins": (
        ((0, 10, 1), "MinTokens, LogitBias, MinP"),
        ((0, 19, 0), "MinTokens, LogitBias, MinP, ThinkingTokenBudget"),
        ((0, 21, 0), "MinTokens, LogitBias, MinP"),
    ),
    "v1-order": (
        ((0, 10, 1), "float32 > allowed ids > bad words > processors > penalties > greedy choice > "
         "temperature > argmax-invariant processors > top-k/top-p"),
        ((0, 21, 0), "float32 > allowed ids > bad words > processors > penalties > thinking budget > greedy "
         "choice > temperature > argmax-invariant processors > top-k/top-p"),
    ),
    "group": (
        ((0, 10, 1), "vllm.logits_processors"),
    ),
    "v1-installed": (
        ((0, 10, 1), "nothing"),
    ),
    "v1-passed": (
        ((0, 10, 1), "subclass"),
    ),
    "v2-installed": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "subclass"),
    ),
    "v2-passed": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "subclass"),
    ),
    "v1-drafts": (
        ((0, 10, 1), "built all the same"),
        ((0, 11, 1), "passed: refused; installed: left out"),
    ),
    "v1-pooling": (
        ((0, 10, 1), "passed: refused; installed: left out"),
    ),
    "tpu": (
        ((0, 10, 1), "none loaded"),
    ),
    "validated": (
        ((0, 10, 1), "-"),
        ((0, 11, 1), "online"),
        ((0, 17, 0), "online and offline"),
    ),
    "validation-error": (
        ((0, 10, 1), "-"),
        ((0, 14, 0), "a ValueError"),
        ((0, 27, 0), "no ValueError"),
    ),
    "reserved": (
        ((0, 10, 1), "none taken"),
    ),
    "async-default": (
        ((0, 10, 1), "off"),
        ((0, 14, 0), "on"),
    ),
    "async-cpu": (
        ((0, 10, 1), "as set"),
        ((0, 14, 0), "off"),
    ),
    "repair": (
        ((0, 10, 1), "never"),
        ((0, 11, 1), "a processor is passed"),
        ((0, 19, 0), "a processor is passed or a reasoning model is served"),
        ((0, 26, 0), "a processor is passed"),
    ),
    "v2-members": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "__init__(vllm_config, req_states), add_request(req_idx, sampling_params), apply(logits, "
         "ctx)*, apply_staged_writes(), validate_params(sampling_params)"),
    ),
    "v2-state": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "device, max_num_reqs, vocab_size, all_token_ids, prompt_len, prefill_len, total_len"),
    ),
    "v2-context": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "expanded_idx_mapping, idx_mapping, idx_mapping_np, expanded_local_pos, input_ids, pos, "
         "seq_lens_upper_bound_np"),
    ),
    "v2-order": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "float32 > logit bias > penalties > bad words > processors > thinking budget > "
         "temperature > min_p > top-k/top-p"),
    ),
    "switch": (
        ((0, 10, 1), "-"),
        ((0, 12, 0), "a number; 0 unless set"),
        ((0, 22, 0), "a number; not set: vLLM decides"),
    ),
    "before-the-switch": (
        ((0, 10, 1), "-"),
        ((0, 30, 0), "hisparse: 0 is refused; watermark: V2, even if it is 0"),
    ),
    "default-runner": (
        ((0, 10, 1), "V1"),
        ((0, 22, 0), "V2 for some models"),
        ((0, 29, 0), "V2"),
    ),
    "triton": (
        ((0, 10, 1), "-"),
        ((0, 22, 0), "V1 without Triton"),
    ),
    "v2-processors": (
        ((0, 10, 1), "-"),
        ((0, 12, 0), "forgets them"),
        ((0, 20, 0), "refuses passed, forgets installed"),
        ((0, 22, 0), "none, passed or installed"),
        ((0, 31, 0), "runs them"),
    ),
    "only-on-v1": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "custom_class, medusa, mlp_speculator, ngram, ngram_gpu, suffix"),
        ((0, 32, 0), "custom_class, medusa, mlp_speculator, suffix"),
        ((0, 33, 0), "custom_class, suffix"),
    ),
    "v2-unsupported": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "stock torch.compile when mode == CompilationMode.STOCK_TORCH_COMPILE; "
         "sequence parallelism when enable_sp and tensor_parallel_size > 1; "
         "pipeline parallelism with external_launcher when distributed_executor_backend == "
         "'external_launcher' and pipeline_parallel_size > 1; "
         "speculative method '{method}' when method in ('ngram', 'ngram_gpu', 'suffix', 'medusa', "
         "'mlp_speculator', 'custom_class'); "
         "parallel drafting for EAGLE speculative decoding when parallel_drafting and method not in "
         "('dflash', 'dspark'); "
         "_get_dbo_unsupported_features() when use_ubatching; "
         "elastic expert parallelism when enable_elastic_ep; "
         "mamba cache mode 'all' when mamba_cache_mode == 'all'"),
        ((0, 32, 0), "pipeline parallelism with external_launcher when distributed_executor_backend == "
         "'external_launcher' and pipeline_parallel_size > 1; "
         "speculative method '{method}' when method in ('suffix', 'medusa', 'mlp_speculator', 'custom_class'); "
         "parallel drafting for EAGLE speculative decoding when parallel_drafting and method not in "
         "('dflash', 'dspark'); "
         "heterogeneous-vocabulary draft models when getattr(speculative_config, "
         "'use_heterogeneous_vocab', False); "
         "_get_dbo_unsupported_features() when use_ubatching"),
        ((0, 33, 0), "pipeline parallelism with external_launcher when distributed_executor_backend == "
         "'external_launcher' and pipeline_parallel_size > 1; "
         "speculative method '{method}' when method in ('suffix', 'custom_class'); "
         "parallel drafting for EAGLE speculative decoding when parallel_drafting and method not in "
         "('dflash', 'dspark'); "
         "heterogeneous-vocabulary draft models when getattr(speculative_config, "
         "'use_heterogeneous_vocab', False); "
         "_get_dbo_unsupported_features() when use_ubatching"),
    ),
    "v2-dbo": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "dual batch overlap when VLLM_USE_V2_MODEL_RUNNER is None; "
         "dual batch overlap with LoRA when lora_config is not None; "
         "dual batch overlap with speculative decoding when speculative_config is not None; "
         "dual batch overlap with pipeline parallelism when pipeline_parallel_size > 1; "
         "dual batch overlap with context parallelism when decode_context_parallel_size > 1 or "
         "prefill_context_parallel_size > 1; "
         "dual batch overlap with multimodal models when is_multimodal_model or is_encoder_decoder; "
         "dual batch overlap with hybrid models when is_hybrid; "
         "dual batch overlap with PIECEWISE CUDA graphs when cudagraph_mode == CUDAGraphMode.PIECEWISE; "
         "dual batch overlap with encoder only models when is_mm_encoder_only"),
    ),
    "v1-unsupported": (
        ((0, 10, 1), "-"),
        ((0, 29, 0), "prefill context parallel when prefill_context_parallel_size > 1; "
         "dspark speculative decoding when method == 'dspark'; "
         "adaptive draft verification when enable_adaptive_verification; "
         "mixed sliding/full dflash drafts when _dflash_needs_multi_kv_group(); "
         "dflash2 drafts when _is_dflash2_draft(); "
         "diffusion models when is_diffusion; "
         "batch-sharded sampling when enable_batch_sharded_sampling"),
        ((0, 31, 0), "prefill context parallel when prefill_context_parallel_size > 1; "
         "pipeline parallelism with async scheduling when pipeline_parallel_size > 1 and async_scheduling; "
         "dspark speculative decoding when method == 'dspark'; "
         "adaptive draft verification when enable_adaptive_verification; "
         "mixed sliding/full dflash drafts when _dflash_needs_multi_kv_group(); "
         "DFlash candidate-head drafts when _is_dflash_candidate_draft(); "
         "diffusion models when is_diffusion; "
         "batch-sharded sampling when enable_batch_sharded_sampling"),
        ((0, 33, 0), "prefill context parallel when prefill_context_parallel_size > 1; "
         "pipeline parallelism with async scheduling when pipeline_parallel_size > 1 and async_scheduling; "
         "dspark speculative decoding when method == 'dspark'; "
         "xpress speculative decoding when not method == 'dspark' and is_xpress(); "
         "adaptive draft verification when enable_adaptive_verification; "
         "draft lm_head quantization when draft_lm_head_quantization is not None; "
         "Parse 3.5 MTP when speculative_config and 'ParseAuxMTPModel' in (architectures or []); "
         "mixed sliding/full dflash drafts when _dflash_needs_multi_kv_group(); "
         "DFlash candidate-head drafts when _is_dflash_candidate_draft(); "
         "diffusion models when is_diffusion; "
         "batch-sharded sampling when enable_batch_sharded_sampling; "
         "Step5 when architecture in ('Step5ForCausalLM', 'Step5ForConditionalGeneration')"),
    ),
    "acceptance": (
        ((0, 10, 1), "-"),
        ((0, 31, 0), "standard, synthetic, block; unless set: standard"),
        ((0, 33, 0), "standard, synthetic, block, fly; unless set: standard"),
    ),
    "mask-replay": (
        ((0, 10, 1), "-"),
        ((0, 28, 0), "refuses V1 and passed"),
    ),
    "trace-replay": (
        ((0, 10, 1), "-"),
        ((0, 29, 0), "refuses V1"),
    ),
}  # fmt: skip
"""(release, value), oldest first; a value holds until the next one's release."""


@dataclass(frozen=True)
class Surprise:
    """A fact that is not what lpkit takes it to be."""

    release: Release
    fact: str
    expected: str
    found: str


def expected(fact: str, release: Release) -> str:
    """The value of ``fact`` in ``release``; that of the newest known one for newer ones."""
    values = [value for since, value in HISTORY[fact] if since <= release]
    return values[-1] if values else "-"


def surprises(found: Mapping[Release, Mapping[str, str]]) -> list[Surprise]:
    """Where the releases' facts differ from the history, the oldest release of each difference only."""
    seen: set[tuple[str, str, str]] = set()
    answer = []
    for release in sorted(found):
        for fact, value in found[release].items():
            wanted = expected(fact, release)
            if value != wanted and (fact, wanted, value) not in seen:
                seen.add((fact, wanted, value))
                answer.append(Surprise(release, fact, wanted, value))
    return answer
