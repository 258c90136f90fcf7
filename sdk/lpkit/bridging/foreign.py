"""Bridges for classes of other libraries whose instances process one request, or one text."""

from __future__ import annotations

import dis
import inspect
import logging
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pydantic
import torch

from lpkit import v1, v2
from lpkit.portable.adapter import AdapterLogitsProcessor, Call, positional_arguments, three_arguments
from lpkit.portable.in_order import InOrder, bounded
from lpkit.portable.params import Field, Params
from lpkit.portable.token_ids import TokenId
from lpkit.sampling_params import SamplingParams
from lpkit.vocabulary.lookup import tokenizer

logger = logging.getLogger("lpkit")

_OF_PROMPT: Final = frozenset({"begin_index", "input_ids_seq_length", "prompt_length_to_skip"})
"""Arguments of transformers' constructors that hold the length of the prompt."""

_OF_ENGINE: Final = frozenset({"device", "num_beams", "tokenizer", "vocab_size"})

_IMPOSSIBLE: Final = {
    "encoder_input_ids": "vLLM shows a processor no encoder's input",
    "model": "a processor runs no second model",
    "num_beam_groups": "vLLM has no groups of beams",
    "unconditional_ids": "a processor runs no second model",
}
"""Arguments that vLLM cannot provide, each with the reason."""


class FromForeign(AdapterLogitsProcessor):
    """Makes an object of the foreign class for each request that gives its arguments."""

    _target: ClassVar[type[Any]]
    _parameters: ClassVar[Mapping[str, str]]
    """Field of ``Params`` -> parameter of the constructor."""
    _filled: ClassVar[tuple[str, ...]]
    """Parameters whose values the engine provides."""
    _stateful: ClassVar[bool]

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        super().validate_params(sampling_params)
        given = cls._given(sampling_params)
        if given is None or {"tokenizer", "vocab_size"} & set(cls._filled):
            return
        try:
            cls._target(**given, **dict.fromkeys(_OF_PROMPT & set(cls._filled), 1), **cls._fixed(torch.device("cpu")))
        except Exception as error:
            raise ValueError(f"{cls._target.__qualname__} refuses its arguments: {error}") from error

    @classmethod
    def _given(cls, sampling_params: SamplingParams) -> dict[str, Any] | None:
        """Return the constructor's arguments from a request; None if it does not use the processor."""
        extra_args = sampling_params.extra_args or {}
        if cls.Params is None:
            return {}
        brought = [name for key, name in cls.Params.keys().items() if extra_args.get(key) is not None]
        params = cls.params(sampling_params) if brought else None
        return None if params is None else {cls._parameters[name]: getattr(params, name) for name in brought}

    @classmethod
    def _fixed(cls, device: torch.device) -> dict[str, Any]:
        values: dict[str, Any] = {"device": device, "num_beams": 1}
        return {name: value for name, value in values.items() if name in cls._filled}

    def new_req_logits_processor(self, params: SamplingParams) -> Call | None:
        given = self._given(params)
        if given is None:
            return None
        engine_values = self._fixed(self.device)
        if "vocab_size" in self._filled:
            engine_values["vocab_size"] = self.vocab_size
        if "tokenizer" in self._filled:
            engine_values["tokenizer"] = tokenizer(self)
        of_prompt = _OF_PROMPT & set(self._filled)

        def make() -> Call:
            made: list[Call] = []

            def call(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
                if not made:
                    made.append(
                        as_call(self._target(**given, **dict.fromkeys(of_prompt, len(prompt_ids)), **engine_values))
                    )
                return made[0](prompt_ids, output_ids, logits)

            return call

        return _Guarded(InOrder(make) if self._stateful else make(), self._target)


class _Guarded:
    """A request's callable, switched off when it raises: in vLLM an exception stops the engine for every request."""

    def __init__(self, call: Call, target: type[Any]) -> None:
        self._call: Call | None = call
        self._target = target

    def __call__(self, prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        if self._call is None:
            return logits
        kept = logits.clone()
        try:
            return bounded(self._call, prompt_ids, output_ids, logits)
        except Exception:
            logger.exception("%s failed; it is off for the rest of this request", self._target.__qualname__)
            self._call = None
            return kept


def is_foreign(target: type[Any]) -> bool:
    """True if a class's instances are callable and the class is not one of vLLM's."""
    called = inspect.getattr_static(target, "__call__", None)
    return isinstance(called, types.FunctionType) and not issubclass(target, v1.LogitsProcessor | v2.LogitsProcessor)


def request_keys(target: type[Any]) -> tuple[str, ...]:
    """Return the constructor arguments that requests can set: arguments without a default, or with a known JSON type.

    Args:
        target: a class whose instances are callables.
    """
    hints = _hints(target)
    return tuple(
        name
        for name, item in inspect.signature(target).parameters.items()
        if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
        and name not in _OF_ENGINE | _OF_PROMPT | _IMPOSSIBLE.keys()
        and (item.default is item.empty or _json_type(hints.get(name, Any), False) is not Any)
    )


def is_of_transformers(item: Any) -> bool:
    """True if ``item`` is a subclass, or an instance of a subclass, of transformers' ``LogitsProcessor``."""
    cls = item if isinstance(item, type) else type(item)
    return any(
        base.__name__ == "LogitsProcessor" and base.__module__ == "transformers.generation.logits_process"
        for base in cls.__mro__
    )


def as_call(item: Any) -> Call:
    """Wrap an object of a foreign class or a factory as ``(prompt_ids, output_ids, logits)``."""
    if not is_of_transformers(item):
        return three_arguments(item)

    def on_text(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        text = torch.tensor([[*prompt_ids, *output_ids]], dtype=torch.int64, device=logits.device)
        edited: torch.Tensor = item(text, logits.unsqueeze(0))
        return edited[0]

    return on_text


def body_of(target: type[Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of a :class:`FromForeign` for ``target``.

    Args:
        target: a class whose instances are callables.
        keys: key of ``extra_args`` -> parameter of its constructor.

    Raises:
        TypeError: ``target`` cannot work behind a bridge; the message says why.
    """
    name = f"{target.__module__}.{target.__qualname__}"
    positional = positional_arguments(target.__call__) - 1
    if positional not in ((2,) if is_of_transformers(target) else (2, 3)):
        raise TypeError(f"{name}() is called with {positional} arguments, and vLLM knows the tokens and logits only")
    parameters = {
        key: item
        for key, item in inspect.signature(target).parameters.items()
        if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
    }
    for parameter, reason in _IMPOSSIBLE.items():
        if parameter in parameters and parameter not in keys.values():
            raise TypeError(f"{name} takes {parameter!r}: {reason}")
    if "ClassifierFreeGuidance" in target.__qualname__:
        raise TypeError(f"{name} needs a second row of logits for each request, which vLLM does not compute")
    unknown = set(keys.values()) - parameters.keys()
    if unknown:
        raise TypeError(f"{name} takes no {', '.join(sorted(unknown))}; it takes {', '.join(parameters) or 'nothing'}")
    filled = (_OF_ENGINE | _OF_PROMPT) & parameters.keys() - set(keys.values())
    missing = [
        key
        for key, item in parameters.items()
        if item.default is item.empty and key not in filled and key not in keys.values()
    ]
    if missing:
        raise TypeError(
            f"{name} needs {', '.join(missing)}: name them in keys, as far as a request can bring them, or bridge a "
            "function (sampling_params) that returns an object of the class"
        )
    body: dict[str, Any] = {
        "_target": target,
        "_parameters": {},
        "_filled": tuple(sorted(filled)),
        "_stateful": keeps_state(target),
    }
    if keys:
        hints = _hints(target)
        fields: dict[str, Any] = {}
        for key, parameter in keys.items():
            default = parameters[parameter].default
            field = Field(alias=key) if default is inspect.Parameter.empty else Field(default, alias=key)
            ids = parameter.endswith(("token_id", "token_ids"))
            fields[f"{parameter}_"] = (_json_type(hints.get(parameter, Any), ids), field)
            body["_parameters"][f"{parameter}_"] = parameter
        body["Params"] = pydantic.create_model("Params", __base__=Params, **fields)
    return body


def keeps_state(target: type[Any]) -> bool:
    """True if a call writes to attributes of the object, in the methods that it reaches by name."""
    seen: set[str] = set()
    pending = ["__call__"]
    while pending:
        name = pending.pop()
        method = inspect.getattr_static(target, name, None)
        method = inspect.unwrap(method) if callable(method) else None
        if name in seen or not isinstance(method, types.FunctionType):
            continue
        seen.add(name)
        if any(item.opname in ("STORE_ATTR", "DELETE_ATTR") for item in dis.get_instructions(method)):
            return True
        pending += method.__code__.co_names
    return False


def _hints(target: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(target.__init__)
    except Exception:  # names that exist only for type checkers
        return {}


_PLAIN: Final[tuple[Any, ...]] = (bool, int, float, str, type(None))


def _json_type(hint: Any, ids: bool) -> Any:
    """Return the part of an annotation that JSON can carry; Any if there is none.

    Args:
        hint: the annotation.
        ids: True if integers are token ids, which are checked against the vocabulary.
    """
    if hint in _PLAIN:
        return TokenId if ids and hint is int else hint
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        members = [member for item in arguments if (member := _json_type(item, ids)) is not Any]
        return typing.Union[tuple(members)] if members else Any  # noqa: UP007
    if origin in (list, tuple, dict) and arguments:
        inner = [item if item is Ellipsis else _json_type(item, ids) for item in arguments]
        return Any if Any in inner else origin[tuple(inner)]
    return Any
