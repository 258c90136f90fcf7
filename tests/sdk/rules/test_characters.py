"""Characters: tokens with banned characters are masked or penalized, and with allowed ones only these are left."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit.rules.chain import Rules
from lpkit.rules.document import DocumentError, steps_of
from lpkit.runtime import make_config
from lpkit.v1 import BatchUpdate
from lpkit.vocabulary.characters import characters
from lpkit.vocabulary.encoder import Encoder
from sdk_hosts import logits_of, params
from trained_tokenizers import byte_level

SIZE = len(byte_level())


def edited(*steps: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of requests with a step each, before and behind it."""
    config = make_config(max_num_seqs=4, vocab_size=SIZE + 3, tokenizer=byte_level())
    processor = Rules(config, torch.device("cpu"), False)
    added = [(row, params(rules=[step]), [1], [2]) for row, step in enumerate(steps)]
    processor.update_state(BatchUpdate(batch_size=len(steps), removed=[], added=added, moved=[]))
    logits = logits_of(len(steps), SIZE + 3)
    return logits, processor.apply(logits.clone())


def test_banned_allowed_and_penalized_classes_share_a_pass() -> None:
    found = characters(Encoder(byte_level()), SIZE + 3)
    steps: list[dict[str, Any]] = [
        {"rule": "characters", "ban": ["upper", "partial"]},
        {"rule": "characters", "allow": ["letter", "space"]},
        {"rule": "characters", "ban": ["punctuation"], "penalty": 2.5},
        {"rule": "characters", "ban": ["punctuation"], "penalty": -2.5},
    ]
    logits, result = edited(*steps)
    expected = logits.clone()
    expected[0, found.holding(["upper", "partial"])] = -math.inf
    kept = torch.from_numpy(found.made_of(["letter", "space"]))
    expected[1] = torch.full_like(expected[1], -math.inf).index_copy_(0, kept, logits[1, kept])
    expected[2, found.holding(["punctuation"])] -= 2.5
    expected[3, found.holding(["punctuation"])] += 2.5
    assert torch.equal(result, expected)


def test_a_class_without_tokens_declines_the_document(caplog: pytest.LogCaptureFixture) -> None:
    logits, result = edited({"rule": "characters", "ban": ["Thai"]})
    assert torch.equal(result, logits)
    assert "step /0 (characters): ban: the model has no token of Thai" in caplog.text


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"ban": ["Cyrilic"]}, "/0/ban/0: unknown; did you mean 'Cyrillic'?"),
        ({"allow": ["digits"]}, "/0/allow/0: unknown; did you mean 'digit'?"),
        ({"ban": [3]}, "/0/ban/0: Input should be a valid string"),
        ({}, "/0: ban or allow is needed, and not both"),
        ({"ban": ["Han"], "allow": ["Latin"]}, "/0: ban or allow is needed, and not both"),
        ({"allow": ["Latin"], "penalty": 1.0}, "/0/penalty: is for ban only"),
    ],
)
def test_a_wrong_step_is_refused_with_its_pointer(step: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError) as error:
        steps_of([{"rule": "characters", **step}])
    assert str(error.value).startswith(said)
