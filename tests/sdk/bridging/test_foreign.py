"""Processors of transformers, of logits-processor-zoo and of Dynamo behind bridges."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import lpkit
import pytest
import torch
from lpkit import v1
from lpkit.runtime import generate
from lpkit.sampling_params import SamplingParams
from sdk_hosts import V1Host, V2Host, config, logits_of, params

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers.generation import logits_process as theirs

VOCAB = 32


class ForceWords:
    """A processor like logits-processor-zoo's: ``(prompt_ids, past_ids, scores)``, and a counter that advances per
    call."""

    def __init__(self, token_ids: list[int], boost: float = 0.0) -> None:
        self.words, self.index = token_ids, 0

    def __call__(self, prompt_ids: list[int], past_ids: list[int], scores: torch.Tensor) -> torch.Tensor:
        if self.index < len(self.words):
            token = self.words[self.index]
            scores = torch.full_like(scores, -torch.inf).index_fill(0, torch.tensor(token), scores[token].item())
        self._advance()
        return scores

    def _advance(self) -> None:
        self.index += 1


class InPlace:
    """A processor like Dynamo's: ``(input_ids, logits)``, in place."""

    def __init__(self, token_id: int) -> None:
        self.token = token_id

    def __call__(self, input_ids: Sequence[int], logits: torch.Tensor) -> None:
        logits[self.token] = -torch.inf


class OneWord:
    """A processor like logits-processor-zoo's, for a word that the tokenizer encodes."""

    def __init__(self, tokenizer: Any, word: str) -> None:
        (self.token,) = tokenizer.encode(word, add_special_tokens=False)

    def __call__(self, prompt_ids: list[int], past_ids: list[int], scores: torch.Tensor) -> torch.Tensor:
        scores[self.token] += 50.0
        return scores


class Breaks:
    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, prompt_ids: list[int], past_ids: list[int], scores: torch.Tensor) -> torch.Tensor:
        scores.zero_()
        if len(past_ids) >= self.after:
            raise RuntimeError("broken")
        return scores


def from_factory(sampling: SamplingParams) -> Any:
    size = (sampling.extra_args or {}).get("ngram")
    return None if size is None else theirs.NoRepeatNGramLogitsProcessor(size)


Repetition = lpkit.bridge(theirs.RepetitionPenaltyLogitsProcessor, keys="penalty")
Renamed = lpkit.bridge(theirs.RepetitionPenaltyLogitsProcessor, keys={"hf_penalty": "penalty"})
Longer = lpkit.bridge(theirs.MinNewTokensLengthLogitsProcessor, keys=("min_new_tokens", "eos_token_id"))
Marked = lpkit.bridge(theirs.WatermarkLogitsProcessor, keys=("greenlist_ratio", "bias"))
NoRepeat = lpkit.bridge(from_factory, keys="ngram")
Instance = lpkit.bridge(theirs.NoRepeatNGramLogitsProcessor(2), keys="no_repeat")
Forced = lpkit.bridge(ForceWords, keys={"force_words": "token_ids"})
Never = lpkit.bridge(InPlace, keys={"never": "token_id"})
Word = lpkit.bridge(OneWord, keys="word")
Broken = lpkit.bridge(Breaks, keys={"break_after": "after"})


def answers(cls: type[Any], runner: Any, args: list[dict[str, Any] | None], **options: Any) -> list[list[int]]:
    """Greedy tokens of the reference runtime: prompts in pieces, and too little room for all requests."""
    prompts = [[1 + i, 2, 3, 4, 5, 6] for i in range(len(args))]
    sampling = [SamplingParams(temperature=0.0, max_tokens=10, extra_args=item) for item in args]
    options = {"max_num_batched_tokens": 8, "num_blocks": 9, "block_size": 4, **options}
    return generate(prompts, sampling, processors=[cls], runner=runner, vocab_size=128, **options)  # type: ignore[no-any-return]


RUNNERS = pytest.mark.parametrize("runner", ["v1", "v2"])

RULES = {
    "repetition": (Repetition, {"penalty": 1.7}, lambda n: theirs.RepetitionPenaltyLogitsProcessor(1.7)),
    "by another key": (Renamed, {"hf_penalty": 1.7}, lambda n: theirs.RepetitionPenaltyLogitsProcessor(1.7)),
    "prompt length": (
        Longer,
        {"min_new_tokens": 3, "eos_token_id": [5, 6]},
        lambda n: theirs.MinNewTokensLengthLogitsProcessor(n, 3, [5, 6], device="cpu"),
    ),
    "vocabulary": (
        Marked,
        {"greenlist_ratio": 0.5, "bias": 3.0},
        lambda n: theirs.WatermarkLogitsProcessor(VOCAB, "cpu", 0.5, 3.0),
    ),
    "factory": (NoRepeat, {"ngram": 2}, lambda n: theirs.NoRepeatNGramLogitsProcessor(2)),
    "instance": (Instance, {"no_repeat": True}, lambda n: theirs.NoRepeatNGramLogitsProcessor(2)),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_processor_of_transformers_does_what_it_does_there(rule: str) -> None:
    cls, args, make = RULES[rule]
    texts = [([1, 2, 3], []), ([4], [7, 9, 7]), ([1, 2, 3], [1, 2])]
    on_v1, on_v2 = V1Host(cls), V2Host(cls)
    given: list[dict[str, Any]] = [args, args, {}]
    on_v1.update(3, added=[(i, params(**given[i]), prompt, output) for i, (prompt, output) in enumerate(texts)])
    for slot, (prompt, output) in enumerate(texts):
        on_v2.add(slot, params(**given[slot]), prompt, output)
    logits = logits_of(3)
    expected = logits.clone()
    for row, (prompt, output) in enumerate(texts[:2]):
        expected[row] = make(len(prompt))(torch.tensor([prompt + output]), logits[row : row + 1].clone())[0]
    assert not torch.equal(expected, logits)
    assert torch.equal(on_v1.apply(logits.clone()), expected)
    assert torch.equal(on_v2.apply(logits.clone(), on_v2.context(range(3))), expected)


@pytest.mark.parametrize(
    ("cls", "args"),
    [
        (Never, {"never": VOCAB}),
        (Forced, {"force_words": [1, VOCAB]}),
        (Longer, {"min_new_tokens": 1, "eos_token_id": VOCAB}),
    ],
)
def test_token_ids_are_compared_with_the_vocabulary(
    cls: type[Any], args: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    host = V1Host(cls)
    host.update(1, added=[(0, params(**args), [1], [])])
    assert f"token id {VOCAB} is outside the vocabulary" in caplog.text
    assert torch.equal(host.apply(logits_of(1)), logits_of(1))


@RUNNERS
def test_a_callable_that_counts_its_calls_is_called_once_per_position(runner: str) -> None:
    words = [[7, 8, 9, 10, 11, 12], None, [20, 21], [30, 29, 28]]
    plain = answers(Forced, runner, [None] * 4)
    found = answers(Forced, runner, [None if item is None else {"force_words": item} for item in words])
    for item, tokens, alone in zip(words, found, plain, strict=True):
        if item is None:
            assert tokens == alone
        else:
            assert tokens[: len(item)] == item


@RUNNERS
def test_a_callable_that_edits_in_place_and_returns_nothing_works(runner: str) -> None:
    plain = answers(Never, runner, [None])[0]
    assert plain[0] not in answers(Never, runner, [{"never": plain[0]}])[0]


def test_a_constructor_is_given_the_engines_tokenizer() -> None:
    made = config()
    made.model_config.lpkit_tokenizer = SimpleNamespace(encode=lambda word, add_special_tokens: [len(word)])
    processor = Word(made, torch.device("cpu"), False)
    processor.update_state(v1.BatchUpdate(1, [], [(0, params(word="seven"), [1], [])], []))
    assert processor.apply(torch.zeros(1, VOCAB)).argmax() == 5


@RUNNERS
def test_a_callable_that_raises_is_switched_off_for_its_request(runner: str, caplog: pytest.LogCaptureFixture) -> None:
    plain = answers(Broken, runner, [None, None])
    with caplog.at_level(logging.ERROR, "lpkit"):
        found = answers(Broken, runner, [{"break_after": 0}, None])
    assert found == plain
    assert "Breaks failed; it is off for the rest of this request" in caplog.text


def test_a_token_is_left_and_what_was_masked_stays_masked() -> None:
    host = V1Host(Forced)
    host.update(1, added=[(0, params(force_words=[3]), [1], [])])
    logits = logits_of(1)
    logits[0, 3] = -torch.inf
    assert torch.equal(host.apply(logits.clone()), logits)


@pytest.mark.parametrize(
    ("cls", "args", "reason"),
    [
        (Repetition, {"penalty": -1.0}, "strictly positive float"),
        (Repetition, {"penalty": "much"}, "penalty"),
        (Longer, {"min_new_tokens": 3}, "min_new_tokens given without eos_token_id"),
        (Forced, {"force_words": [1.5]}, "force_words"),
    ],
)
def test_wrong_arguments_are_refused_when_the_request_arrives(
    cls: type[Any], args: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        cls.validate_params(params(**args))


@pytest.mark.parametrize("value", [None, True, -1.0, [None], {"a": [1]}], ids=str)
def test_wrong_arguments_change_nothing_where_the_front_end_did_not_ask(value: Any) -> None:
    first, second = V1Host(Repetition), V2Host(Repetition)
    first.update(1, added=[(0, params(penalty=value), [1], [2])])
    second.add(0, params(penalty=value), [1], [2])
    assert torch.equal(first.apply(logits_of(1)), logits_of(1))
    assert torch.equal(second.apply(logits_of(1), second.context([0])), logits_of(1))


class NeedsFunction(theirs.LogitsProcessor):  # type: ignore[misc]
    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return self.function(input_ids, scores)


class OfBeams(theirs.LogitsProcessor):  # type: ignore[misc]
    def __init__(self, penalty: float) -> None:
        self.penalty = penalty

    def __call__(self, input_ids: Any, scores: Any, current_tokens: Any, beam_group_idx: int) -> Any:
        return scores - self.penalty * current_tokens[beam_group_idx]


@pytest.mark.parametrize(
    ("target", "keys", "reason"),
    [
        (theirs.EncoderRepetitionPenaltyLogitsProcessor, "penalty", "encoder_input_ids.*no encoder's input"),
        (theirs.UnbatchedClassifierFreeGuidanceLogitsProcessor, "guidance_scale", "no second model"),
        (theirs.ClassifierFreeGuidanceLogitsProcessor, "guidance_scale", "second row of logits"),
        (OfBeams, "penalty", "called with 4 arguments"),
        (theirs.RepetitionPenaltyLogitsProcessor, (), "needs penalty: name them in keys"),
        (theirs.RepetitionPenaltyLogitsProcessor, "strength", "takes no strength; it takes penalty"),
        (NeedsFunction, (), r"a function \(sampling_params\)"),
        (theirs.SynthIDTextWatermarkLogitsProcessor(5, [1, 2], 16, 0, 4, "cpu"), "on", "keeps state"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(target: Any, keys: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        lpkit.bridge(target, keys=keys, name="Refused")
