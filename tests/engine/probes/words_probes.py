"""A processor whose parameters are words, and what an engine knows of them."""

from __future__ import annotations

import math
from typing import Annotated, Any

import lpkit
import torch


class BanWords(lpkit.LogitsProcessor):
    class Params(lpkit.Params, prefix="ban_"):
        words: Annotated[lpkit.TokenIdsOf, lpkit.WordForms(spaces=True)] = lpkit.Field(min_length=1, max_length=16)

    words = lpkit.ragged(torch.int64)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.words[rows]] = -math.inf


def is_vllms_own(engine: Any) -> bool:
    """Check that lpkit finds the tokenizer that vLLM loads for its configuration, once, and that the engine
    encodes with it."""
    from vllm.tokenizers import cached_tokenizer_from_config

    config = engine.llm.llm_engine.vllm_config
    found = lpkit.tokenizer(config)
    same = found.get_vocab() == engine.llm.get_tokenizer().get_vocab()
    return same and found is cached_tokenizer_from_config(config.model_config)


def both(engine: Any, words: list[str]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The token ids of words as vLLM's ``bad_words`` has them, and as lpkit has them."""
    from vllm import SamplingParams

    config = engine.llm.llm_engine.vllm_config
    params = SamplingParams(bad_words=words)
    params.update_from_tokenizer(lpkit.tokenizer(config))
    ours = lpkit.words(config, words, spaces=True, several="sequences")
    return [tuple(ids) for ids in params.bad_words_token_ids or []], ours
