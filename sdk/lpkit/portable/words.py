"""Parameters that are words: a request gives text, and the processor gets token ids."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Sequence
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from lpkit._nearest import suggest
from lpkit.portable.token_ids import TokenId
from lpkit.vocabulary.characters import CLASSES, characters, holding, made_of
from lpkit.vocabulary.encoder import Encoder
from lpkit.vocabulary.forms import WordForms, in_order, sequences, single_ids
from lpkit.vocabulary.lookup import tokenizer

MOST_CHARACTERS = 128
"""Longest word, in characters. The engine waits while words become tokens."""

_Word = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS, json_schema_extra={"lpkit": "word"})]
_REMEMBERED = 256

P = TypeVar("P", bound=BaseModel)


class _Words:
    """Marks a field that takes words or token ids in a request, and holds token ids for the processor."""

    def __init__(self, find: Callable[..., Any], names: Collection[str] = ()) -> None:
        self.find = find
        self.names = names  # the only words that count

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        schema = handler(source)  # with the bounds of the list
        if self.names:
            item = handler.generate_schema(Annotated[_Word, AfterValidator(self._checked_name)])
        else:
            item = handler.generate_schema(_Word | TokenId)
            item["custom_error_type"] = "word"
            item["custom_error_message"] = f"Input should be a word of 1 to {MOST_CHARACTERS} characters, or a token id"
        held = schema
        while held["type"] != "tuple":
            held = held["schema"]
        held["items_schema"] = [item]
        return schema

    def _checked_name(self, name: str) -> str:
        if name not in self.names:
            raise PydanticCustomError("name", "{reason}", {"reason": f"unknown; {suggest(name, self.names)}"})
        return name

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        described = handler(schema)
        if self.names:
            return {**described, "items": {"enum": list(self.names)}}
        described["description"] = (
            "Words or token ids. The engine declines a request with a word that it cannot resolve."
        )
        return described


TokenIdsOf = Annotated[tuple[int, ...], _Words(single_ids)]
"""Words of one token each: the request gives a list of words or token ids, and the processor gets the ids.

``Annotated[lpkit.TokenIdsOf, lpkit.WordForms(spaces=True)]`` chooses the forms of a word that count. Only the engine
knows the model's tokens. There, a request with a word that has no token is declined, and the log names the word. Before
that, in ``check_together`` and ``validate_params``, the field holds the request's values.
"""

TokenSequencesOf = Annotated[tuple[tuple[int, ...], ...], _Words(sequences)]
"""Words of any number of tokens: like :data:`TokenIdsOf`, but the processor gets a tuple of token ids for each form."""


MarkerOf = Annotated[tuple[int, ...], _Words(in_order)]
"""Words that stand one behind the other: the processor gets their token ids as one sequence."""


HoldingOf = Annotated[tuple[int, ...], _Words(holding, CLASSES)]
"""Names of classes of characters: the processor gets the tokens that hold a character of one of them."""

MadeOf = Annotated[tuple[int, ...], _Words(made_of, CLASSES)]
"""Names of classes of characters: the processor gets the tokens that hold no other characters."""


class WordField(NamedTuple):
    """A field declared as words."""

    key: str  # of extra_args
    name: str
    find: Callable[..., Any]
    forms: WordForms


def word_fields(params: type[BaseModel], keys: dict[str, str]) -> list[WordField]:
    """Return the fields declared as :data:`TokenIdsOf` or :data:`TokenSequencesOf`; ``keys`` as from ``Params.keys()``.

    Raises:
        TypeError: a word field lies inside another type, or ``WordForms`` is wrong or not on a word field.
    """
    declared = []
    for key, name in keys.items():
        where = f"{params.__qualname__}.{name}"
        field = params.model_fields[name]
        annotation, metadata = unwrapped(field.annotation, field.metadata)
        if any(item is WordForms for item in metadata):
            raise TypeError(f"{where}: declare lpkit.WordForms(...), not the class")
        marks = [item for item in metadata if isinstance(item, _Words)]
        forms = [item for item in metadata if isinstance(item, WordForms)]
        if not marks:
            if _holds_words(annotation):
                raise TypeError(f"{where}: words are a list already; declare them without a container")
            if forms:
                raise TypeError(f"{where}: WordForms is for lpkit.TokenIdsOf and lpkit.TokenSequencesOf only")
            continue
        counted = forms[-1] if forms else WordForms()
        if marks[-1].find is sequences and counted.several != "refuse":
            raise TypeError(f"{where}: several={counted.several!r} is for lpkit.TokenIdsOf; forms are sequences here")
        declared.append(WordField(key, name, marks[-1].find, counted))
    return declared


def check_word_fields(params: type[BaseModel], keys: dict[str, str]) -> None:
    """Refuse wrong word fields, as :func:`word_fields` does, and defaults that no request could give.

    Raises:
        TypeError: a field is wrong; the message names it.
    """
    for word_field in word_fields(params, keys):
        field = params.model_fields[word_field.name]
        depends = getattr(field, "default_factory_takes_validated_data", False)  # uses other fields; pydantic 2.10
        if field.is_required() or depends:
            continue
        declared: Any = field.annotation
        for item in field.metadata:
            declared = Annotated[declared, item]
        default = field.get_default(call_default_factory=True)
        try:
            TypeAdapter(declared).validate_python(default, strict=True)
        except ValidationError as error:
            where = f"{params.__qualname__}.{word_field.name}"
            reason = error.errors(include_url=False)[0]["msg"]
            raise TypeError(f"{where}: the default {default!r} is not a tuple of words as declared: {reason}") from None


def unwrapped(annotation: Any, metadata: Sequence[Any] = ()) -> tuple[Any, Sequence[Any]]:
    """Remove ``Annotated`` and ``| None`` around an annotation, and put their metadata before ``metadata``."""
    if get_origin(annotation) is Annotated:
        inner, *said = get_args(annotation)
        return unwrapped(inner, [*said, *metadata])
    if get_origin(annotation) in (typing.Union, UnionType):
        options = [option for option in get_args(annotation) if option is not type(None)]
        if len(options) == 1:
            return unwrapped(options[0], metadata)
    return annotation, metadata


def _holds_words(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated and any(isinstance(item, _Words) for item in get_args(annotation)):
        return True
    return any(_holds_words(part) for part in get_args(annotation) if part is not Ellipsis)


class Resolver:
    """Replaces the words of a request's parameters by token ids.

    Args:
        fields: declared as words.
        vllm_config: of the engine. Its tokenizer is loaded now, because every request waits during an admission. An
            engine without a tokenizer starts, but takes only token ids.
        vocab_size: of the model.
    """

    def __init__(self, fields: list[WordField], vllm_config: Any, vocab_size: int) -> None:
        self._fields = fields
        self._vocab_size = vocab_size
        self._memo: dict[tuple[str, tuple[str | int, ...]], tuple[Any, ...]] = {}
        self._encoder: Any = None
        self._missing: Exception | None = None
        try:
            self._encoder = Encoder(tokenizer(vllm_config))
            if any(field.find in (holding, made_of) for field in fields):
                characters(self._encoder, vocab_size)
        except Exception as error:  # raised here, it would keep the engine from starting
            self._missing = error

    def resolve(self, params: P) -> P:
        """Return a copy of ``params`` with ids instead of words.

        Raises:
            ValueError: the model has no token for a word; the message names key and word.
        """
        resolved = {}
        for field in self._fields:
            given = getattr(params, field.name)
            if given:
                resolved[field.name] = self._ids(field, given)
        return params.model_copy(update=resolved)

    def _ids(self, field: WordField, given: tuple[str | int, ...]) -> Any:
        remembered = self._memo.get((field.name, given))
        if remembered is not None:
            return remembered
        if self._missing is not None:
            words = [item for item in given if isinstance(item, str)]
            if words:
                raise ValueError(f"{field.key}: {words[0]!r} has no token ids here: {self._missing}") from self._missing
        try:
            resolved = field.find(self._encoder, given, field.forms, self._vocab_size)
        except ValueError as error:
            raise ValueError(f"{field.key}: {error}") from None
        if not isinstance(resolved, list):  # an array of up to a whole vocabulary, found fast
            return resolved
        ids = tuple(resolved)
        if len(self._memo) >= _REMEMBERED:
            self._memo.clear()
        self._memo[field.name, given] = ids
        return ids
