"""Edits of one request's logits, and the detector's verdict on a text."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_greenlist_watermark import GreenlistWatermark

VOCAB = 4000


def change(
    extra_args: dict[str, Any], tokens: list[int], logits: torch.Tensor | None = None, temperature: float = 1.0
) -> torch.Tensor:
    """Return the edited logits of a request with these parameters and tokens."""
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    processor = GreenlistWatermark(config, torch.device("cpu"), False)
    params = SamplingParams(temperature=temperature, extra_args=extra_args)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[(0, params, tokens[:1], tokens[1:])], moved=[]))
    return processor.apply(torch.zeros(1, VOCAB) if logits is None else logits.unsqueeze(0))[0]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.8])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_share_of_the_tokens_is_green_and_gets_the_bias(share: float, temperature: float) -> None:
    args = {"greenlist_key": 7, "greenlist_share": share, "greenlist_bias": 1.5}
    changed = change(args, [3, 4], temperature=temperature)
    assert set(changed.tolist()) == {0.0, 1.5}
    assert abs(float((changed > 0).float().mean()) - share) < 4 * math.sqrt(share * (1 - share) / VOCAB)


def test_key_and_context_select_the_tokens_and_nothing_else_does() -> None:
    args = {"greenlist_key": 7, "greenlist_context": 2}
    first = change(args, [9, 3, 4])
    assert torch.equal(first, change(args, [8, 8, 8, 3, 4]))
    others = [change(args, [9, 4, 3]), change(args, [9, 5, 4]), change({**args, "greenlist_key": 8}, [9, 3, 4])]
    others += [change({**args, "greenlist_context": context}, [9, 3, 4]) for context in (1, 3)]
    for other in others:
        common = ((first > 0) & (other > 0)).float().mean()
        assert abs(float(common) - 0.0625) < 0.02  # what chance makes common to two lists


def test_texts_shorter_than_the_context_are_marked_too() -> None:
    assert (change({"greenlist_key": 7, "greenlist_context": 8}, [3]) > 0).any()


def test_masked_tokens_stay_masked() -> None:
    logits = torch.zeros(VOCAB)
    logits[::2] = -math.inf
    changed = change({"greenlist_key": 7}, [3, 4], logits.clone())
    assert torch.equal(changed == -math.inf, logits == -math.inf)


@pytest.mark.parametrize(
    "extra_args",
    [
        {"greenlist_key": 0.5},
        {"greenlist_key": 1, "greenlist_share": 0},
        {"greenlist_key": 1, "greenlist_share": 1.0},
        {"greenlist_key": 1, "greenlist_bias": -1},
        {"greenlist_key": 1, "greenlist_context": 9},
        {"greenlist_share": 0.5},
        {"greenlist_key": 1, "greenlist_gamma": 0.5},
    ],
)
def test_bad_parameters_are_refused(extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="greenlist_"):
        GreenlistWatermark.validate_params(SamplingParams(extra_args=extra_args))


def test_the_detector_finds_a_text_of_green_tokens_and_no_other() -> None:
    rng = random.Random(0)
    args = {"greenlist_key": 7, "greenlist_share": 0.5}
    text = [3]
    for _ in range(60):
        text.append(rng.choice(change(args, text).nonzero().flatten().tolist()))
    found = GreenlistWatermark.detect(text, key=7, share=0.5)
    assert (found.green, found.scored) == (60, 60)
    assert found.z == pytest.approx(math.sqrt(60))
    assert found.p_value < 1e-13
    assert abs(GreenlistWatermark.detect(text, key=8, share=0.5).z) < 3
    assert abs(GreenlistWatermark.detect(rng.sample(range(VOCAB), 60), key=7, share=0.5).z) < 3


def test_repetitions_count_once_and_short_texts_prove_nothing() -> None:
    assert GreenlistWatermark.detect([5, 6] * 50, key=7).scored == 2
    assert GreenlistWatermark.detect([5], key=7).p_value == 1.0
