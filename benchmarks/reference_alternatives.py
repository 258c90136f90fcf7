"""Alternatives to the reference plugins: vLLM's own rules, and those of transformers.

:data:`TABLE` lists it by the processor's class; the bench's ``BenchOptions.alternatives`` takes this file.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from lpkit_conformance.bench.candidates import Function, Parameters
from lpkit_conformance.hosts.steady import Candidate, SteadyBatch
from lpkit_conformance.hosts.v1 import V1Candidate
from vllms_ocr import ngram_class

Arguments = Mapping[str, Any]
Build = Callable[[Arguments, torch.device], Candidate]

BUILTINS = "vllm.v1.sample.logits_processor.builtin"


class Absent(Exception):
    """An alternative that this environment does not have; says which package is missing."""


def alternatives(identity: str, arguments: Arguments, device: torch.device) -> Iterator[Candidate | str]:
    """Alternatives to ``module:Class`` with these ``extra_args``; a string says what is missing."""
    for build in TABLE.get(identity, ()):
        try:
            yield build(arguments, device)
        except Absent as reason:
            yield str(reason)
        except Exception as error:  # another version of vLLM or transformers, with other names
            yield f"an alternative cannot be made here: {type(error).__name__}: {error}"


# -- kinds of alternatives ---------------------------------------------------------------------------------------


def builtin(cls: str, fields: Callable[[Arguments], dict[str, Any]]) -> Build:
    """One of vLLM's V1 processors; ``fields`` are the ``SamplingParams`` that say the same."""

    def build(arguments: Arguments, device: torch.device) -> Candidate:
        module = _vllm(BUILTINS)
        return V1Candidate(f"vLLM V1 {cls}", getattr(module, cls), Parameters(fields(arguments)), device, "alternative")

    return build


def sampler_masks_allowed(arguments: Arguments, device: torch.device) -> Candidate:
    """``allowed_token_ids``: V1's sampler fills by a dense mask that its batch keeps."""
    _vllm("vllm.v1.sample.sampler")
    ids = list(arguments["allowed_tokens"])

    masks: list[torch.Tensor] = []

    def ready(steady: SteadyBatch) -> Callable[[torch.Tensor], Any]:
        if not masks:
            mask = torch.ones(steady.size, steady.vocab, dtype=torch.bool, device=device)
            mask[:, ids] = False
            masks.append(mask)
        return lambda logits: logits.masked_fill_(masks[0], -math.inf)

    return Function("vLLM V1 allowed_token_ids (its mask ready)", ready, memory=1.0)


def sampler_penalties(arguments: Arguments, device: torch.device) -> Candidate:
    """V1's sampler: dense counts of both histories at every step."""
    apply_all = _vllm("vllm.v1.sample.ops.penalties").apply_all_penalties

    def ready(steady: SteadyBatch) -> Callable[[torch.Tensor], Any]:
        def column(key: str, default: float) -> torch.Tensor:
            return torch.full((steady.size,), arguments.get(key, default), device=device)

        wanted = (
            column("penalties_presence", 0.0),
            column("penalties_frequency", 0.0),
            column("penalties_repetition", 1.0),
        )
        longest = max(request.prompt_len for request in steady.rows)
        prompts = torch.full((steady.size, longest), steady.vocab, dtype=torch.int64)
        for row, request in enumerate(steady.rows):
            prompts[row, : request.prompt_len] = torch.tensor(request.prompt_token_ids)
        prompts = prompts.to(device)
        outputs = [request.output_token_ids for request in steady.rows]
        return lambda logits: apply_all(logits, prompts, *wanted, outputs)

    return Function("vLLM V1 penalties", ready, memory=8.0)  # two int64 histograms, masks, temporaries


def v2_min_p(arguments: Arguments, device: torch.device) -> Candidate:
    """V2's sampler: one kernel, with a program for each row that goes over it twice."""
    apply = _v2_kernel("min_p", device).apply_min_p

    def ready(steady: SteadyBatch) -> Callable[[torch.Tensor], Any]:
        rows = torch.arange(steady.size, device=device, dtype=torch.int32)
        shares = torch.full((steady.size,), float(arguments["min_p_threshold"]), device=device)
        return in_place(lambda logits: apply(logits, rows, shares))

    return Function("vLLM V2 min_p", ready, memory=0.0)


def v2_penalties(arguments: Arguments, device: torch.device) -> Candidate:
    """V2's sampler: one kernel over whole rows, and dense counts of the output's tokens that it keeps per slot."""
    apply = _v2_kernel("penalties", device).apply_penalties

    def ready(steady: SteadyBatch) -> Callable[[torch.Tensor], Any]:
        n, words = steady.size, -(-steady.vocab // 32)

        def column(key: str, default: float) -> torch.Tensor:
            return torch.full((n,), float(arguments.get(key, default)), device=device)

        in_prompt = torch.zeros(n, words * 32, dtype=torch.int32)
        in_output = torch.zeros(n, steady.vocab, dtype=torch.int32)
        for row, request in enumerate(steady.rows):
            in_prompt[row, list(request.prompt_token_ids or ())] = 1
            outputs = torch.tensor(request.output_token_ids)
            in_output[row].index_add_(0, outputs, torch.ones_like(outputs, dtype=torch.int32))
        bits = (in_prompt.view(n, words, 32) << torch.arange(32, dtype=torch.int32)).sum(2, dtype=torch.int32)
        rows = torch.arange(n, device=device, dtype=torch.int32)
        names = {"penalties_repetition": 1.0, "penalties_frequency": 0.0, "penalties_presence": 0.0}
        given = (rows, rows, torch.zeros_like(rows), *(column(key, default) for key, default in names.items()))
        bits, in_output = bits.to(device), in_output.to(device)
        return in_place(lambda logits: apply(logits, *given, bits, in_output))

    return Function("vLLM V2 penalties (its counts ready)", ready, memory=2.0)


def in_place(edit: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of the logits that returns them."""

    def call(logits: torch.Tensor) -> torch.Tensor:
        edit(logits)
        return logits

    return call


def warper(cls: str, make: Callable[[Any, Arguments, torch.device], Any], memory: float = 4.0) -> Build:
    """One of transformers' processors, for the whole batch, with the histories that it asks for at hand."""

    def build(arguments: Arguments, device: torch.device) -> Candidate:
        try:
            module = importlib.import_module("transformers.generation.logits_process")
        except ImportError:
            raise Absent("transformers is not installed here") from None
        processor = make(getattr(module, cls), arguments, device)

        def ready(steady: SteadyBatch) -> Callable[[torch.Tensor], Any]:
            length = min(request.total_len for request in steady.rows)  # it knows one length for all
            ids = torch.tensor(
                [[*(request.prompt_token_ids or ()), *request.output_token_ids][-length:] for request in steady.rows]
            ).to(device)
            return lambda logits: processor(ids, logits)

        return Function(f"transformers {cls}", ready, memory)

    return build


def truncating_warper(arguments: Arguments, device: torch.device) -> Candidate:
    """transformers' warper of the same rule; top-a and tail-free have none."""
    name = {"epsilon": "Epsilon", "eta": "Eta", "typical": "Typical"}[arguments["truncation_rule"]]
    return warper(f"{name}LogitsWarper", lambda cls, args, device: cls(args["truncation_threshold"]))(arguments, device)


def deepseek_ocr_ngram(arguments: Arguments, device: torch.device) -> Candidate:
    """vLLM's class for DeepSeek-OCR, which takes the same keys: a request-level callable in its adapter."""
    _vllm("vllm")
    return V1Candidate(
        "vLLM V1 NGramPerReq", ngram_class(), Parameters({"extra_args": dict(arguments)}), device, "alternative"
    )


def _vllm(name: str) -> Any:
    root = importlib.import_module("vllm") if importlib.util.find_spec("vllm") else None
    if root is None or getattr(root, "__lpkit_standin__", False):
        raise Absent("vLLM is not installed here")
    return importlib.import_module(name)


def _v2_kernel(name: str, device: torch.device) -> Any:
    if device.type != "cuda":
        raise Absent("vLLM's V2 kernels need a GPU")
    return _vllm(f"vllm.v1.worker.gpu.sample.{name}")


class _Watermark:
    """transformers' watermark asks for the vocabulary's size when it is made."""

    def __init__(self, cls: Any, arguments: Arguments, device: torch.device) -> None:
        self._cls, self._arguments, self._device = cls, arguments, device
        self._made: Any = None

    def __call__(self, ids: torch.Tensor, logits: torch.Tensor) -> Any:
        if self._made is None:
            args = self._arguments
            self._made = self._cls(
                logits.shape[1],
                self._device,
                greenlist_ratio=args.get("greenlist_share", 0.25),
                bias=args.get("greenlist_bias", 2.0),
                hashing_key=abs(args["greenlist_key"]),
                context_width=args.get("greenlist_context", 1),
            )
        return self._made(ids, logits)


def _synthid(cls: Any, arguments: Arguments, device: torch.device) -> Any:
    return cls(
        ngram_len=arguments.get("synthid_ngram_len", 5),
        keys=list(arguments["synthid_keys"]),
        sampling_table_size=2**16,
        sampling_table_seed=0,
        context_history_size=arguments.get("synthid_context_history_size", 1024),
        device=device,
    )


TABLE: dict[str, tuple[Build, ...]] = {
    "lpkit_min_p.processor:MinP": (
        builtin("MinPLogitsProcessor", lambda args: {"min_p": args["min_p_threshold"]}),
        v2_min_p,
        warper("MinPLogitsWarper", lambda cls, args, device: cls(args["min_p_threshold"])),
    ),
    "lpkit_allowed_tokens.processor:AllowedTokens": (sampler_masks_allowed,),
    "lpkit_logit_bias.processor:LogitBias": (
        builtin(
            "LogitBiasLogitsProcessor",
            lambda args: {
                "logit_bias": dict(zip(args["logit_bias_ids"], args["logit_bias_values"], strict=True)),
            },
        ),
        warper(
            "SequenceBiasLogitsProcessor",
            lambda cls, args, device: cls(
                {(i,): v for i, v in zip(args["logit_bias_ids"], args["logit_bias_values"], strict=True)}
            ),
        ),
    ),
    "lpkit_penalties.processor:Penalties": (
        sampler_penalties,
        v2_penalties,
        warper(
            "RepetitionPenaltyLogitsProcessor",
            lambda cls, args, device: cls(float(args.get("penalties_repetition", 1.0))),
        ),
    ),
    "lpkit_no_repeat_ngram.processor:NoRepeatNgram": (
        warper("NoRepeatNGramLogitsProcessor", lambda cls, args, device: cls(args["no_repeat_ngram_size"])),
    ),
    "lpkit_ocr_ngram.processor:OcrNgram": (deepseek_ocr_ngram,),
    "lpkit_greenlist_watermark.processor:GreenlistWatermark": (warper("WatermarkLogitsProcessor", _Watermark),),
    "lpkit_synthid.processor:SynthId": (warper("SynthIDTextWatermarkLogitsProcessor", _synthid, memory=50.0),),
    "lpkit_truncation.processor:Truncation": (truncating_warper,),
}
"""By the class of the processor, what says the same with its ``extra_args``."""
