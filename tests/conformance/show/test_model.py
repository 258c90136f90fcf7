"""The built-in model: readable tokens, a distribution at every context, and texts like the one it was made from."""

from __future__ import annotations

import math
from importlib.resources import files

import pytest
import torch
from lpkit_conformance.errors import UsageError
from lpkit_conformance.show import model as models
from lpkit_conformance.show.model import Toy, load

TEXT = (files(models.__package__) / "text.txt").read_text(encoding="utf-8")
MODEL = Toy()


@pytest.mark.parametrize("text", [TEXT, 'An unknown w\u00f6rd, {"a": [1, 2]}\n\tx', ""])
def test_a_text_is_the_text_of_its_tokens(text: str) -> None:
    decoded = MODEL.tokenizer.decode(MODEL.encode(text))
    assert decoded == text.replace("\u00f6", "<unk>")


def test_every_context_has_a_distribution_over_the_whole_vocabulary() -> None:
    for tokens in ([], [7], MODEL.encode("The cat"), [MODEL.vocab_size - 1] * 5):
        probabilities = MODEL.logits(tokens).exp()
        assert probabilities.shape == (MODEL.vocab_size,) and bool((probabilities > 0).all())
        assert float(probabilities.sum()) == pytest.approx(1, abs=1e-5)


def test_the_interpolation_is_absolute_discounting_worked_out_by_hand() -> None:
    """After " b" come a c twice and a d once: c has (2 - D) / 3 + D 2 / 3 of its share without context."""
    model = Toy(" a b c a b c a b d")
    c, alone = model.encode(" c")[0], model.logits([]).exp()
    share = models.DISCOUNT * 2 / 3
    got = model.logits(model.encode("\n b"))[c].exp()  # an unknown longer context
    assert float(got) == pytest.approx((2 - models.DISCOUNT) / 3 + share * float(alone[c]), abs=1e-6)


def test_it_is_small_and_predicts_its_own_text() -> None:
    assert 1_000 <= MODEL.vocab_size <= 4_000
    tokens = MODEL.encode(TEXT)[:500]
    losses = [-float(MODEL.logits(tokens[:n])[tokens[n]]) for n in range(1, len(tokens))]
    assert math.exp(sum(losses) / len(losses)) < 5 < MODEL.vocab_size / 100


def test_frequent_tokens_have_low_ids_and_words_have_forms() -> None:
    ids = MODEL.tokenizer.get_vocab()
    assert ids[" the"] < 10 and {" bread", "bread", " Bread", "Bread"} <= ids.keys()


def test_a_model_of_transformers_gives_its_own_logits(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    from lpkit_conformance.vllm_api.tokenizer import tokenizer_folder

    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1
    )
    torch.manual_seed(0)
    made = transformers.LlamaForCausalLM(config).eval()
    transformers.PreTrainedTokenizerFast.from_pretrained(tokenizer_folder(512)).save_pretrained(tmp_path)
    made.save_pretrained(tmp_path)
    model = load(str(tmp_path))
    tokens = model.encode("yes no")
    with torch.no_grad():
        expected = made(torch.tensor([tokens])).logits[0, -1]
    assert torch.allclose(model.logits(tokens), expected, atol=1e-5)
    assert not model.toy and model.vocab_size == 512


def test_a_model_that_is_not_there_is_a_mistake_of_the_user() -> None:
    with pytest.raises(UsageError, match="no such folder"):
        load("/nowhere")
