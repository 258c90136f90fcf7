"""Parameters that are words: what requests may give, and what processors get on both runners."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Annotated, Any

import lpkit
import pytest
import torch
from lpkit.runtime import Request, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from trained_tokenizers import byte_level

BAN = {word: lpkit.words(byte_level(), [word])[0] for word in ("yes", " yes", "no", " no")}


class Ban(lpkit.LogitsProcessor):
    """Forbids single tokens."""

    class Params(lpkit.Params, prefix="ban_"):
        words: lpkit.TokenIdsOf = lpkit.Field(min_length=1, max_length=4)
        forms: Annotated[lpkit.TokenIdsOf, lpkit.WordForms(spaces=True)] = ()
        phrases: lpkit.TokenSequencesOf | None = None

    banned = lpkit.ragged(torch.int64)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[Any] = []

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.seen.append(request.params)
        self.banned[request.slot] = [*request.params.words, *request.params.forms]
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.banned[rows]] = -math.inf


class BanByCall(lpkit.AdapterLogitsProcessor):
    """The same for each request's own callable."""

    history = "length"
    Params = Ban.Params

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        wanted = self.params(params)
        if wanted is None:
            return None

        def ban(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            logits[[*wanted.words, *wanted.forms]] = -math.inf
            return logits

        return ban


@pytest.fixture(params=[V1Engine, V2Engine])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    def step(cls: type, tokenizer: Any = None, **extra_args: Any) -> tuple[set[int], Any]:
        """The tokens that a request with these arguments finds masked, and the processor."""
        engine = request.param([cls], tokenizer=tokenizer or byte_level(), seed=3)
        engine.add(Request("r", SamplingParams(extra_args=extra_args), [5, 6]))
        (row,) = engine.step().processed
        return set(row.isneginf().nonzero()[:, 0].tolist()), engine.processors[0]

    return step


@pytest.mark.parametrize("cls", [Ban, BanByCall])
def test_a_processor_gets_the_ids_of_the_words(run: Any, cls: type) -> None:
    assert run(cls, ban_words=["yes", " no"])[0] == {BAN["yes"], BAN[" no"]}


@pytest.mark.parametrize("cls", [Ban, BanByCall])
def test_the_declaration_says_which_forms_count(run: Any, cls: type) -> None:
    assert run(cls, ban_words=["yes"], ban_forms=["no"])[0] == {BAN["yes"], BAN["no"], BAN[" no"]}


def test_words_of_several_tokens_are_sequences_where_they_are_declared_so(run: Any) -> None:
    _, processor = run(Ban, ban_words=["yes"], ban_phrases=["yes no", 7])
    assert processor.seen[0].phrases == ((BAN["yes"], BAN[" no"]), (7,))


def test_token_ids_stay_allowed_and_need_no_tokenizer(run: Any) -> None:
    def none() -> Any:
        raise lpkit.NoTokenizer("there is none")

    assert run(Ban, none, ban_words=[9, 12])[0] == {9, 12}
    assert run(Ban, ban_words=[9, "yes"])[0] == {9, BAN["yes"]}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["unusual"], "ban_words: 'unusual' is not one token of the model but 2: 'unu', 'sual'"),
        (["yes", "</s>"], "ban_words: '</s>' holds a special token of the model"),
        ([600], "ban_words: token id 600 is outside the vocabulary of 512"),
    ],
)
def test_a_word_without_a_token_declines_the_request_and_is_logged(
    run: Any, words: list[Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lpkit"):
        masked, processor = run(Ban, ban_words=words)
    assert (masked, processor.seen) == (set(), [])
    assert reason in caplog.text
    (line,) = caplog.records
    assert (line.levelname, line.exc_info) == ("WARNING", None)


def test_an_engine_without_a_tokenizer_starts_and_declines_words(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    def none() -> Any:
        raise lpkit.NoTokenizer("the engine was started without a tokenizer")

    masked, _ = run(Ban, none, ban_words=["yes"])
    assert masked == set()
    assert "ban_words: 'yes' has no token ids here: the engine was started without a tokenizer" in caplog.text


@pytest.mark.parametrize("given", [["yes"], [5], ["yes", 5, "no"]])
def test_validation_accepts_words_and_ids(given: list[Any]) -> None:
    Ban.validate_params(SamplingParams(extra_args={"ban_words": given}))


@pytest.mark.parametrize("given", ["yes", 5, [], ["a"] * 5, {"a": 1}])
def test_validation_refuses_what_is_no_list_of_the_declared_length(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^ban_words: "):
        Ban.validate_params(SamplingParams(extra_args={"ban_words": given}))


@pytest.mark.parametrize("item", ["", "a" * 129, True, 1.5, None, -1, ["a"]])
def test_validation_names_an_item_that_is_no_word(item: Any) -> None:
    with pytest.raises(ValueError, match=r"^ban_words\.1: Input should be a word of 1 to 128 characters, or a token"):
        Ban.validate_params(SamplingParams(extra_args={"ban_words": ["yes", item]}))


def test_a_word_that_is_refused_does_not_make_the_list_too_short() -> None:
    with pytest.raises(ValueError, match=r"^ban_words\.0: Input should be a word[^;]*$"):
        Ban.validate_params(SamplingParams(extra_args={"ban_words": [""]}))


def test_equal_words_are_resolved_once() -> None:
    tokenizer = byte_level()
    asked = []

    class Counting:
        all_special_ids = tokenizer.all_special_ids

        def encode(self, text: str, **options: Any) -> Any:
            asked.append(text)
            return tokenizer.encode(text, **options)

    engine = V1Engine([Ban], tokenizer=Counting())
    for n in range(5):
        engine.add(Request(f"r{n}", SamplingParams(extra_args={"ban_words": ["yes", "no"]}), [5]))
    engine.step()
    assert sorted(asked) == ["no", "yes"]


def test_words_and_ids_are_told_apart_when_they_are_remembered() -> None:
    engine = V1Engine([Ban], tokenizer=byte_level())
    for name, words in (("a", ["5"]), ("b", [5])):
        engine.add(Request(name, SamplingParams(extra_args={"ban_words": words}), [5]))
    engine.step()
    assert [params.words for params in engine.processors[0].seen] == [tuple(lpkit.words(byte_level(), "5")), (5,)]


def test_the_schema_tells_words_from_other_strings() -> None:
    schema = Ban.Params.model_json_schema()["properties"]["words"]
    assert [option["lpkit"] for option in schema["items"]["anyOf"]] == ["word", "token_id"]
    assert (schema["minItems"], schema["maxItems"]) == (1, 4)
    assert "words" not in Ban.Params.token_id_fields()


def test_words_in_a_list_are_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"Nested\.words: words are a list already"):

        class Nested(lpkit.Params):
            words: list[lpkit.TokenIdsOf]


def test_a_default_is_words_too(run: Any) -> None:
    class Always(Ban):
        class Params(lpkit.Params, prefix="always_"):
            words: lpkit.TokenIdsOf = lpkit.Field(("yes",))
            forms: lpkit.TokenIdsOf = ()

    assert run(Always)[0] == {BAN["yes"]}


@pytest.mark.parametrize(
    ("default", "reason"),
    [
        ("yes", "'yes' is not a tuple of words as declared"),
        (["yes"], r"\['yes'\] is not a tuple of words as declared"),
        (5, "5 is not a tuple of words as declared"),
        (("yes", ""), "a word of 1 to 128 characters, or a token id"),
        (lpkit.Field(("yes", "no"), max_length=1), "at most 1 item"),
        (lpkit.Field(default_factory=list), r"\[\] is not a tuple of words as declared"),
    ],
)
@pytest.mark.parametrize("declared", [lpkit.TokenIdsOf, lpkit.TokenSequencesOf | None])
def test_a_default_that_no_request_could_give_is_refused_when_the_class_is_made(
    default: Any, reason: str, declared: Any
) -> None:
    with pytest.raises(TypeError, match=rf"Params\.words: the default .*{reason}"):
        type(lpkit.Params)("Params", (lpkit.Params,), {"__annotations__": {"words": declared}, "words": default})


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (Annotated[lpkit.TokenIdsOf, lpkit.WordForms], r"lpkit\.WordForms\(\.\.\.\), not the class"),
        (Annotated[list[int], lpkit.WordForms(spaces=True)], "for lpkit.TokenIdsOf and lpkit.TokenSequencesOf only"),
        (Annotated[lpkit.TokenSequencesOf, lpkit.WordForms(several="skip")], "several='skip' is for lpkit.TokenIdsOf"),
    ],
)
def test_forms_that_would_have_no_effect_are_refused_when_the_class_is_made(declared: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=rf"Params\.words: .*{reason}"):
        type(lpkit.Params)("Params", (lpkit.Params,), {"__annotations__": {"words": declared}})
