"""Real mlx-lm generates on the CPU with exported plugins; the model is tiny and random, nothing is downloaded."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import lpkit.export
import mlx.core as mx
import pytest
import torch
import transformers
from greedy_document import LENGTH, RULES
from greedy_document import VOCAB as WIDE
from lpkit_allowed_tokens import AllowedTokens
from lpkit_conformance.engine import model as checkpoint
from lpkit_dry import Dry
from lpkit_forced_sequence import ForcedSequence
from lpkit_logit_bias import LogitBias
from lpkit_min_p import MinP
from lpkit_no_repeat_ngram import NoRepeatNgram
from lpkit_penalties import Penalties
from lpkit_rules import Rules
from mlx_lm.generate import BatchGenerator, generate_step, speculative_generate_step
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.sample_utils import make_logits_processors, make_sampler
from mlx_lm.utils import load_model

pytestmark = pytest.mark.engines

VOCAB = 96
PROMPT = [5, 9, 13, 9, 40, 41]
LONG = 40


def tiny(seed: int) -> Model:
    mx.random.seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 2}
    model = Model(
        ModelArgs(model_type="llama", rms_norm_eps=1e-5, vocab_size=VOCAB, tie_word_embeddings=False, **sizes)
    )
    mx.eval(model.parameters())
    return model


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny(1)


def generate(model: Model, processors: list[Any], prompt: list[int] = PROMPT, **options: Any) -> list[int]:
    steps = generate_step(mx.array(prompt), model, max_tokens=LONG, logits_processors=processors, **options)
    return [token for token, _ in steps]


def test_a_repetition_penalty_gives_the_tokens_of_the_engines_own(model: Model) -> None:
    own = generate(model, make_logits_processors(repetition_penalty=1.3, repetition_context_size=10_000))
    assert generate(model, [lpkit.export.mlx(Penalties, repetition=1.3)]) == own
    assert own != generate(model, [])


def test_a_logit_bias_gives_the_tokens_of_the_engines_own(model: Model) -> None:
    bias = {3: 0.4, 17: 0.35, 60: -9.0}
    own = generate(model, make_logits_processors(logit_bias=bias))
    ours = lpkit.export.mlx(LogitBias, ids=list(bias), values=list(bias.values()))
    assert generate(model, [ours]) == own
    assert own != generate(model, [])


def test_a_forced_sequence_comes_out(model: Model) -> None:
    ours = lpkit.export.mlx(ForcedSequence, ids=[7, 8, 9, 7], end=11)
    assert generate(model, [ours]) == [7, 8, 9, 7] + [11] * (LONG - 4)


def test_only_allowed_tokens_come_out(model: Model) -> None:
    allowed = {1, 2, 3, 50}
    drawn = generate(model, [lpkit.export.mlx(AllowedTokens, ids=sorted(allowed))], sampler=make_sampler(temp=1.0))
    assert set(drawn) <= allowed
    assert len(set(drawn)) > 1


def test_no_group_of_tokens_repeats(model: Model) -> None:
    def groups(tokens: list[int]) -> list[tuple[int, ...]]:
        return list(itertools.pairwise(tokens))

    plain, ours = generate(model, []), generate(model, [lpkit.export.mlx(NoRepeatNgram, size=2)])
    assert len(set(groups(plain))) < len(groups(plain))
    assert len(set(groups(ours))) == len(groups(ours))


def test_a_rule_of_the_sampling_stage_is_right_where_the_engine_divides_by_the_temperature_later(model: Model) -> None:
    """At temperature 2, a token stays if its probability is a third of the top one's, or more, at that temperature."""
    ours = lpkit.export.mlx(MinP, threshold=1 / 3, temperature=2.0)
    logits = model(mx.array(PROMPT)[None])[:, -1, :] * 4
    edited = ours(mx.array(PROMPT), logits)
    far = (logits.max() - logits) / 2.0 > mx.log(mx.array(3.0))
    assert 0 < far.sum().item() < VOCAB
    assert mx.array_equal(edited, mx.where(far, -mx.inf, logits)).item()


def test_a_document_gives_the_greedy_tokens_that_transformers_chooses(tmp_path: Path) -> None:
    """vLLM chooses these tokens, too: `tests/engine/test_same_as_transformers.py`."""
    checkpoint.write(tmp_path, WIDE, LENGTH)
    model, _ = load_model(tmp_path)
    model.set_dtype(mx.float32)
    ours = generate(model, [lpkit.export.mlx(Rules, {"rules": RULES}, temperature=0.0)])
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    text = theirs.generate(
        torch.tensor([PROMPT]), logits_processor=[lpkit.export.transformers(Rules, {"rules": RULES})],
        do_sample=False, eos_token_id=None, pad_token_id=0, max_new_tokens=LONG,
    )  # fmt: skip
    assert ours == text[0, len(PROMPT) :].tolist()
    assert ours != generate(model, [])


def test_logits_of_half_precision_come_back_in_it(model: Model) -> None:
    ours = lpkit.export.mlx(Penalties, repetition=1.3)
    logits = model(mx.array(PROMPT)[None])[:, -1, :].astype(mx.bfloat16)
    edited = ours(mx.array(PROMPT), logits)
    assert edited.dtype == mx.bfloat16
    untouched = mx.array([token for token in range(VOCAB) if token not in PROMPT])
    assert mx.array_equal(edited[:, untouched], logits[:, untouched]).item()


def test_one_callable_serves_sequences_one_after_the_other(model: Model) -> None:
    given = {"frequency": 1.5, "repetition": 1.1}
    prompts = [PROMPT, [1, 2], PROMPT]
    alone = [generate(model, [lpkit.export.mlx(Penalties, given)], prompt) for prompt in prompts]
    one = lpkit.export.mlx(Penalties, given)
    assert [generate(model, [one], prompt) for prompt in prompts] == alone


def test_a_prompt_in_pieces_is_one_prompt(model: Model) -> None:
    given = {"frequency": 1.5, "repetition": 1.1}
    whole = generate(model, [lpkit.export.mlx(Penalties, given)])
    assert generate(model, [lpkit.export.mlx(Penalties, given)], prefill_step_size=2) == whole


@pytest.mark.parametrize(
    ("rule", "given"),
    [(Penalties, {"frequency": 0.7, "presence": 0.2}), (NoRepeatNgram, {"size": 2}), (Dry, {"multiplier": 3.0})],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("drafter", [1, 2], ids=["agrees", "differs"])
def test_speculative_decoding_gives_the_same_tokens(model: Model, drafter: int, rule: Any, given: Any) -> None:
    """Rules on outputs: of the prompt, mlx-lm shows processors the last token only in this mode."""
    prompt = [5]
    plain = generate(model, [lpkit.export.mlx(rule, given)], prompt)
    steps = speculative_generate_step(
        mx.array(prompt), model, tiny(drafter), max_tokens=LONG, logits_processors=[lpkit.export.mlx(rule, given)]
    )
    drafted = [(token, by_draft) for token, _, by_draft in steps]
    assert [token for token, _ in drafted] == plain
    accepted = sum(by_draft for _, by_draft in drafted)
    assert (accepted > LONG // 2) == (drafter == 1)


@pytest.mark.parametrize("shared", [False, True], ids=["each-its-own", "one-for-all"])
def test_sequences_of_a_batch_are_served_in_turns(model: Model, shared: bool) -> None:
    given = {"frequency": 1.5, "repetition": 1.1}
    prompts = [PROMPT, [1, 2], [30, 31, 32], PROMPT]
    alone = [generate(model, [lpkit.export.mlx(Penalties, given)], prompt) for prompt in prompts]
    one = lpkit.export.mlx(Penalties, given)
    processors = [[one if shared else lpkit.export.mlx(Penalties, given)] for _ in prompts]
    batch = BatchGenerator(model, max_tokens=LONG, stop_tokens=[])
    names = batch.insert(prompts, logits_processors=processors)
    tokens: dict[int, list[int]] = {name: [] for name in names}
    while responses := batch.next_generated():
        for response in responses:
            tokens[response.uid].append(response.token)
    assert [tokens[name] for name in names] == alone


def test_an_unknown_parameter_is_refused_when_it_is_exported() -> None:
    with pytest.raises(ValueError, match=r"no parameter 'repetitoin'; did you mean 'repetition'\?"):
        lpkit.export.mlx(Penalties, repetitoin=1.3)


def test_a_class_without_an_interface_is_refused_when_it_is_exported() -> None:
    with pytest.raises(TypeError, match="has no V1 interface"):
        lpkit.export.mlx(dict)


def test_a_token_beyond_the_vocabulary_is_refused_at_the_first_call(model: Model) -> None:
    ours = lpkit.export.mlx(AllowedTokens, ids=[1, VOCAB])
    with pytest.raises(ValueError, match=f"{VOCAB}"):
        generate(model, [ours])
