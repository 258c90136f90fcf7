"""One model, one plugin: vLLM on both runners and transformers' ``generate`` choose the same greedy tokens."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from typing import Any

import lpkit.export
import pytest
import torch
import transformers
from greedy_document import LENGTH, RULES, VOCAB
from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine import model as tiny
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings

pytestmark = pytest.mark.engine

TOKENS = 24
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "allowed": ("lpkit_allowed_tokens.processor:AllowedTokens", {"allowed_tokens": [5, 0, 511, 77]}),
    "bias": (
        "lpkit_logit_bias.processor:LogitBias",
        {"logit_bias_ids": [*range(64)], "logit_bias_values": [5.0] * 64},
    ),
    "penalties": (
        "lpkit_penalties.processor:Penalties",
        {"penalties_repetition": 1.5, "penalties_presence": 0.5, "penalties_frequency": 0.5},
    ),
    "dry": ("lpkit_dry.processor:Dry", {"dry_multiplier": 1.0, "dry_allowed_length": 1}),
    "forced": (
        "lpkit_forced_sequence.processor:ForcedSequence",
        {"forced_sequence": [400, 3, 9], "forced_sequence_end": 7},
    ),
    "green": ("lpkit_greenlist_watermark.processor:GreenlistWatermark", {"greenlist_key": 99, "greenlist_bias": 100.0}),
    "cite": ("lpkit_cite_from_prompt.processor:CiteFromPrompt", {"cite_boost": 8.0, "cite_next_boost": 8.0}),
    "rules": (
        "lpkit_rules.processor:Rules",
        {"rules": RULES},
    ),
    "ngram": ("lpkit_no_repeat_ngram.processor:NoRepeatNgram", {"no_repeat_ngram_size": 1}),
}
PROMPTS = {name: tuple(random.Random(name).randrange(3, VOCAB) for _ in range(5 + i)) for i, name in enumerate(CASES)}


@pytest.fixture(scope="module", params=["v1", "v2"])
def chosen_by_vllm(request: pytest.FixtureRequest, engines: Callable[..., EngineProcess]) -> dict[str, list[int]]:
    settings = EngineSettings(request.param, max_num_seqs=8, max_model_len=LENGTH, vocab_size=VOCAB)
    targets = [target for target, _ in CASES.values()]
    asks = [
        Ask(name, PROMPTS[name], {"max_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True, "extra_args": args})
        for name, (_, args) in CASES.items()
    ]
    return {name: answer.token_ids for name, answer in engines(settings, targets).generate(asks).items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tiny")
    tiny.write(folder, VOCAB, LENGTH)
    return transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def test_vllm_and_transformers_choose_the_same_tokens(chosen_by_vllm: dict[str, list[int]], model: Any) -> None:
    options: dict[str, Any] = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "max_new_tokens": TOKENS}
    for name, (target, args) in CASES.items():
        module, _, cls = target.partition(":")
        ours = lpkit.export.transformers(getattr(importlib.import_module(module), cls), args)
        prompt = torch.tensor([PROMPTS[name]])
        text = model.generate(prompt, logits_processor=[ours], **options)[0].tolist()
        assert text[len(PROMPTS[name]) :] == chosen_by_vllm[name], name
        assert text != model.generate(prompt, **options)[0].tolist(), f"{name}: the rule never mattered"
