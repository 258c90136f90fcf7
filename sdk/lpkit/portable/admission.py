"""Decides if a request is admitted, and stores its column values; the same on both runners."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lpkit.columns.column import Declaration, column
from lpkit.columns.memory import Arena
from lpkit.portable.token_ids import check_ids
from lpkit.portable.words import Resolver, WordField, word_fields
from lpkit.sampling_params import GREEDY_EPSILON

if TYPE_CHECKING:
    from lpkit.portable.params import Params
    from lpkit.sampling_params import SamplingParams

logger = logging.getLogger("lpkit")

Take = Callable[[int, Any, "SamplingParams", "list[int] | None"], bool]
"""(slot, params, sampling params, prompt ids) -> True if the processor takes the request."""

READ = "_lpkit_read"
"""Key of parameters that :meth:`Admission.read` has returned before."""

_TEMPERATURE = "_lpkit_temperature"
_OWN = "_lpkit_own"


class AdmissionError(ValueError):
    """Error that kept a request from being admitted; raised only on request, see :func:`raise_from_admission`.

    Args:
        owner: name of the processor's class.
        sampling_params: of the request.
        error: the cause.

    Attributes:
        sampling_params: of the request.
    """

    def __init__(self, owner: str, sampling_params: SamplingParams, error: Exception) -> None:
        super().__init__(f"{owner} could not admit the request: {error or type(error).__name__}")
        self.sampling_params = sampling_params


class Admission:
    """Decides which requests a processor gets, and keeps its columns.

    Args:
        owner: name of the processor's class, for the log.
        params: its parameters; None if it declares none.
        declared: its columns by name.
        sampling_only: True to refuse greedy requests.
        take: decides about each request with valid parameters.
        divided: True if the engine divides by the temperature before the processor sees logits.
        vllm_config, slots, device, vocab_size: of the engine.

    Attributes:
        arena: holds the columns.
        flush: sends staged column values to the device, if there are any.
        columns: by name.
        temperature: temperature by which the engine will still divide each request's logits.
        active: True for slots of admitted requests.
        resolver: turns words into token ids; None without word parameters.
        required_keys: a request without any of these in its ``extra_args`` does not use the processor; None: any
            request may.
        raises: True to let :meth:`admit` raise errors. It must stay False in an engine.
    """

    def __init__(
        self,
        owner: str,
        params: type[Params] | None,
        declared: Mapping[str, Declaration[Any]],
        sampling_only: bool,
        take: Take,
        *,
        divided: bool,
        vllm_config: Any,
        slots: int,
        device: torch.device,
        vocab_size: int,
    ) -> None:
        self.owner = owner
        self.raises = False
        self._sampling_only = sampling_only
        self._divided = divided
        self._take = take
        self._vocab_size = vocab_size
        own_columns = {_TEMPERATURE: column(torch.float32, default=1.0), _OWN: column(torch.bool)}
        self.arena = Arena({**declared, **own_columns}, slots, device, vocab_size)
        self.columns = self.arena.columns
        self.temperature, self.active = self.columns[_TEMPERATURE], self.columns[_OWN]
        self._params = params
        self.required_keys: frozenset[str] | None = None
        self._token_ids: dict[str, str] = {}  # key -> field, as Params.keys()
        self.resolver: Resolver | None = None
        if params is not None:
            self.required_keys, self._token_ids, words = _declared(params)
            if words:
                self.resolver = Resolver(words, vllm_config, vocab_size)
        self.flush = self.arena.flush
        self.flush()

    @property
    def admitted(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """:attr:`active` on the host, bool ``[slots + 1]``."""
        return self.active._host

    def dismiss(self, slot: int) -> None:
        """Record that the request in a slot is not admitted, or no more."""
        self.active[slot] = False

    def asked_by(self, sampling_params: SamplingParams) -> bool:
        """True if the request has any of the required keys. A binding asks once, before :meth:`admit`."""
        keys, args = self.required_keys, sampling_params.extra_args
        return keys is None or bool(args and not keys.isdisjoint(args))

    def admit(self, slot: int, sampling_params: SamplingParams, prompt_ids: list[int] | None) -> bool:
        """Decide on a request. Errors are logged: an exception here would stop the engine for every request.

        Raises:
            AdmissionError: an error occurred, and :attr:`raises` is set.
        """
        try:
            greedy = sampling_params.temperature < GREEDY_EPSILON
            if greedy and self._sampling_only:
                return False
            params = None
            if self._params is not None:
                try:
                    params = self.read(sampling_params)
                except ValueError as reason:  # the client's arguments are wrong, not the plugin
                    if self.raises:
                        raise
                    logger.warning("%s declined a request: %s", self.owner, reason)
                    return False
                if params is None:
                    return False
            self.arena.reset(slot)
            if not (greedy or self._divided):
                self.temperature[slot] = sampling_params.temperature
            admitted = bool(self._take(slot, params, sampling_params, prompt_ids))
            self.active[slot] = admitted
            return admitted
        except Exception as error:
            if self.raises:
                raise AdmissionError(self.owner, sampling_params, error) from error
            logger.exception("%s declined a request that it could not admit", self.owner)
            return False

    def read(self, sampling_params: SamplingParams) -> Params | None:
        """Return a request's parameters with ids for words; None if it gives none.

        Raises:
            ValueError: a parameter is wrong, or the model lacks a word or a token.
        """
        if self._params is None:
            return None
        args = sampling_params.extra_args
        before = args.get(READ) if args else None
        if isinstance(before, self._params):  # no request can hold one
            return before
        params = self._params.parse(args)
        if params is not None and self.resolver is not None:
            params = self.resolver.resolve(params)
        if params is not None and self._token_ids:
            for key, name in self._token_ids.items():
                check_ids(key, getattr(params, name), self._vocab_size)
        return params


@cache
def _declared(params: type[Params]) -> tuple[frozenset[str] | None, dict[str, str], list[WordField]]:
    """Return the keys, if a request must have one of them; the fields of token ids by key; and the fields of words."""
    keys, ids = params.keys(), params.token_id_fields()
    required = any(field.is_required() for field in params.model_fields.values())
    token_ids = {key: name for key, name in keys.items() if name in ids}
    return frozenset(keys) if required else None, token_ids, word_fields(params, keys)
