"""``lpkit.bridge``: makes a class for both runners from code for one runner, or for vLLM's V0 engine."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import pydantic

from lpkit.bridging.bridged import Bridged
from lpkit.bridging.foreign import FromForeign, as_call, body_of, is_foreign, is_of_transformers, keeps_state
from lpkit.history.rows import HISTORY_USES, HistoryUse
from lpkit.portable.adapter import AdapterLogitsProcessor, positional_arguments
from lpkit.portable.params import Field, Params
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import RequestLogitsProcessor


def bridge(
    target: Any,
    *,
    keys: str | Sequence[str] | Mapping[str, str] = (),
    history: HistoryUse = "tokens",
    name: str | None = None,
) -> type[Any]:
    """Make a class for both of vLLM's runners from ``target``; assign it at module level.

    ======================================================  ====================================================
    ``target``                                              becomes
    ======================================================  ====================================================
    a V1 class                                              :class:`lpkit.Bridged`
    ``(output_ids, logits)``,                               :class:`lpkit.AdapterLogitsProcessor`; requests with
    ``(prompt_ids, output_ids, logits)``                    a true ``keys[0]`` use the callable, all if
                                                            there is no key
    a factory ``(sampling_params)`` of one of these, or     the same; only requests with one of ``keys`` are
    of None for requests that do not use it                 passed to the factory, all if there is no key
    a class of such callables, as logits-processor-zoo      the same; ``keys`` are arguments of its constructor,
    has them, or of transformers' ``LogitsProcessor``\\ s    and the engine gives device, tokenizer, vocabulary
                                                            size and prompt length
    ======================================================  ====================================================

    A callable may edit in place and return None. An object of transformers gets the request's text. If a class's calls
    write to attributes of the object, it is called exactly once per position, in order.

    Args:
        target: see above.
        keys: keys of ``SamplingParams.extra_args`` by which a request opts in. For a class of callables, they are the
            names of its constructor's arguments, or a mapping from key to argument.
        history: ``"tokens"``, ``"length"`` or ``"none"``: the part of the token lists to read. Less is cheaper.
        name: of the class. By default it is the name that the result is assigned to. vLLM's other processes find the
            class only under that name.

    Raises:
        TypeError: ``target`` is none of the kinds above, or runs on both runners already.
        ValueError: for an unknown ``history``, or a callable with several keys.
    """
    named = dict(keys) if isinstance(keys, Mapping) else None
    keys = (keys,) if isinstance(keys, str) else tuple(keys)
    if history not in HISTORY_USES:
        raise ValueError(f"history must be one of {', '.join(HISTORY_USES)}, not {history!r}")
    caller = sys._getframe(1)
    target_name = getattr(target, "__name__", type(target).__name__)
    body: dict[str, Any] = {"__module__": caller.f_globals.get("__name__", __name__), "history": history}
    body["__doc__"] = f"{target_name} on both of vLLM's runners.\n\n{inspect.getdoc(target) or ''}".rstrip()
    called = name or _assigned_to(caller) or target_name
    if isinstance(target, type) and is_foreign(target):
        return type(called, (FromForeign,), {**body, **body_of(target, named or {key: key for key in keys})})
    if named is not None:
        raise TypeError(f"keys of {target_name} are names: a mapping says what arguments of a constructor they are")
    if isinstance(target, type):
        return type(called, (Bridged,), {**body, "wraps": target, "keys": keys})
    if not callable(target):
        raise TypeError(f"lpkit.bridge takes a V1 class or a callable, not {target!r}")
    if positional_arguments(target) == 1:
        return type(called, (_FromFactory,), {**body, "_factory": staticmethod(target), "_shown": keys})
    call = as_call(target)  # refuses other objects
    if is_of_transformers(target) and keeps_state(type(target)):
        raise TypeError(f"{target_name} keeps state, which requests cannot share: bridge its class")
    if len(keys) > 1:
        raise ValueError(
            f"{target_name} is one callable for all requests, so one key switches it on, not {', '.join(keys)}"
        )
    if keys:
        body["Params"] = pydantic.create_model("Params", __base__=Params, on=(bool, Field(alias=keys[0])))
    return type(called, (_FromCallable,), {**body, "_callable": staticmethod(call)})


class _FromCallable(AdapterLogitsProcessor):
    """Gives every request that opts in the same callable."""

    _callable: Any

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        given: Any = self.params(params)
        call: RequestLogitsProcessor = self._callable
        return call if given is None or given.on else None


class _FromFactory(AdapterLogitsProcessor):
    """Calls the author's factory for each request's callable."""

    _factory: Any
    _shown: tuple[str, ...]

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        if self._shown and not (params.extra_args and any(key in params.extra_args for key in self._shown)):
            return None
        made = self._factory(params)
        return None if made is None else as_call(made)


def _assigned_to(caller: FrameType) -> str | None:
    """Return ``Name`` if the caller is executing ``Name = lpkit.bridge(...)`` at module level.

    Python tells an object nothing of the module's name for it, and ``pickle`` asks for that name before any call.
    """
    if caller.f_locals is not caller.f_globals:
        return None
    following = (item for item in dis.get_instructions(caller.f_code) if item.offset > caller.f_lasti)
    stored = next((item for item in following if item.opname not in ("CACHE", "EXTENDED_ARG")), None)
    return str(stored.argval) if stored is not None and stored.opname == "STORE_NAME" else None
