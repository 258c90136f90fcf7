"""lpkit-ocr-ngram gives the logits of the class in vLLM that it stands in for, bit by bit, on both runners' hosts."""

from __future__ import annotations

import random
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # importing vLLM warns
    from lpkit.loading import interfaces_of
    from vllm.v1.sample.logits_processor import BatchUpdate

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tests/sdk/helpers", "reference_plugins/lpkit-ocr-ngram/src", "benchmarks")
sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]

from lpkit_ocr_ngram import OcrNgram  # noqa: E402
from plugin_hosts import ON_EVERY_HOST, Applied, Asked  # noqa: E402
from sdk_hosts import logits_of  # noqa: E402
from vllms_ocr import ngram_class  # noqa: E402

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

VOCAB = 64


NGramPerReqLogitsProcessor = ngram_class()


def vllms(logits: torch.Tensor, requests: list[Asked]) -> torch.Tensor:
    theirs = NGramPerReqLogitsProcessor(make_config(max_num_seqs=len(requests)), torch.device("cpu"), False)
    added = [(i, asked.sampling, list(asked.prompt), list(asked.output)) for i, asked in enumerate(requests)]
    theirs.update_state(BatchUpdate(len(requests), (), added, ()))
    result: torch.Tensor = theirs.apply(logits.clone())
    return result


def requests(rng: random.Random) -> list[Asked]:
    """Few kinds of tokens, so that n-grams of any size repeat; the last request does not use the rule."""
    asked = []
    for _ in range(120):
        args: dict[str, Any] = {"ngram_size": rng.choice([1, 2, 3, 4, 8])}
        if rng.random() < 0.8:
            args["window_size"] = rng.choice([1, 5, 20, 100, 1000])
        if rng.random() < 0.3:
            args["whitelist_token_ids"] = rng.sample(range(4), rng.randint(0, 2))
        kinds, length = rng.randint(1, 4), rng.choice([0, 1, 2, 7, 40, 40, 200])
        asked.append(Asked(args, [1, 2, 1, 2], [rng.randrange(kinds) for _ in range(length)]))
    return [*asked, Asked(None, [1, 2], [1, 1, 1])]


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(4))
def test_the_logits_are_vllms_to_the_bit(applied: Applied, seed: int) -> None:
    asked = requests(random.Random(seed))
    logits = logits_of(len(asked), VOCAB, seed)
    expected = vllms(logits, asked)
    assert torch.equal(applied(OcrNgram, logits, asked).view(torch.int32), expected.view(torch.int32))
    assert int(expected.isneginf().sum()) > 15


def test_it_runs_where_vllms_does_not() -> None:
    assert interfaces_of(NGramPerReqLogitsProcessor) == {"v1"}
    assert interfaces_of(OcrNgram) == {"v1", "v2"}


@pytest.mark.parametrize(
    "args", [None, {"ngram_size": 3}, {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [5, 7]}]
)
def test_it_takes_what_vllms_takes(args: dict[str, Any] | None) -> None:
    params = SamplingParams(extra_args=args)
    NGramPerReqLogitsProcessor.validate_params(params)
    OcrNgram.validate_params(params)


@pytest.mark.parametrize("args", [{"ngram_size": 0}, {"ngram_size": "3"}, {"ngram_size": 3, "window_size": -1}])
def test_it_refuses_what_vllms_refuses(args: dict[str, Any]) -> None:
    for cls in (NGramPerReqLogitsProcessor, OcrNgram):
        with pytest.raises(ValueError, match="_size"):
            cls.validate_params(SamplingParams(extra_args=args))
