"""Questions about histories have the same answers on a GPU, where kernels compare tokens, and on a CPU, by hashes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from device_under_test import DEVICE, HAVE_GPU, all_or
from lpkit import kernels, sequences

pytestmark = pytest.mark.gpu


def histories(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ones of few and of many kinds, one token or a span again and again, runs that are as long as the last."""
    generator = torch.Generator().manual_seed(width)
    index = torch.arange(width)
    texts = [index * 0, index % 7, index % 300, (index % (width // 5 + 1) > 0).long(), (index == width // 3).long()]
    texts += [torch.randint(0, kinds, (width,), generator=generator) for kinds in (2, 50, 150_000)]
    tokens = torch.stack(texts * 4)
    lengths = torch.randint(0, width + 1, (len(tokens),), generator=generator)
    lengths[: len(texts)] = width
    return torch.where(index < lengths.unsqueeze(1), tokens, -1), lengths


Question = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
QUESTIONS: dict[str, Question] = {
    "match_lengths": sequences.match_lengths,
    "match_lengths since": lambda tokens, lengths: sequences.match_lengths(tokens, lengths, lengths // 3 - 9),
    "completes_ngram": lambda tokens, lengths: sequences.completes_ngram(
        tokens, lengths, lengths % 9 + 1, lengths // 4
    ),
}


@pytest.mark.parametrize("width", all_or([1, 100, 1024, 4096, 32_768], 2))
@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_about_histories_agree(name: str, width: int) -> None:
    assert not HAVE_GPU or kernels.prepare_few(DEVICE) is not None, "no Triton kernels on this GPU"
    given = histories(width)
    found = QUESTIONS[name](*(item.to(DEVICE) for item in given))
    assert torch.equal(found.cpu(), QUESTIONS[name](*given))
