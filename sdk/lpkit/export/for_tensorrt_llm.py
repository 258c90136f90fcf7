"""TensorRT-LLM: requests have names and beams, token lists hold prompt and outputs, and no request ever ends."""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lpkit.export.host import ExportHost, check_vocabulary, follow, sampling_params
from lpkit.history.on_host import V1Row

_log = logging.getLogger(__name__)

_MOST = 4096
"""Number of remembered requests. The engine reports no ends of requests, but every step shows all running requests."""

_hosts: dict[tuple[type[Any], int, torch.device], ExportHost] = {}
"""Hosts, shared because every request brings a copy of its processor to the engine."""


class Requests:
    """The requests of a processor, by the engine's names.

    Args:
        cls: a processor's class.
        given: arguments of each request.
        temperature: divides the logits afterwards.
        overlap: True if the engine shows outputs one step late.
    """

    def __init__(
        self, cls: type[Any], given: Mapping[str, Any], *, temperature: float = 1.0, overlap: bool = True
    ) -> None:
        self._params = sampling_params(cls, given, temperature)
        if overlap and getattr(cls, "history", "tokens") != "none":
            raise TypeError(
                f"{cls.__qualname__} reads the history, of which TensorRT-LLM's overlap scheduler hides the last "
                "token: start the engine with disable_overlap_scheduler=True and say overlap=False"
            )
        self._cls = cls
        self._known: OrderedDict[int, list[V1Row]] = OrderedDict()
        self._refused: set[int] = set()

    def edit(
        self,
        names: Sequence[int],
        logits: Sequence[torch.Tensor],
        token_ids: Sequence[list[list[int]]],
        stream_ptr: int | None,
    ) -> None:
        """Edit the logits of a step in place.

        Args:
            names: of the requests.
            logits: of each request, ``[..., beams, vocab]``.
            token_ids: of each request and beam: prompt and outputs.
            stream_ptr: the CUDA stream that the logits are computed on; None: the current one.
        """
        if not names or not self._fits(logits[0].shape[-1]):
            return
        with _on_stream(stream_ptr, logits[0].device):
            flat = [tensor.reshape(-1, tensor.shape[-1]) for tensor in logits]
            each = zip(names, token_ids, flat, strict=True)
            rows = [row for name, ids, beams in each for row in self._rows(name, ids, len(beams))]
            edited = self._host(flat[0]).process(torch.cat(flat), rows)
            for tensor, part in zip(logits, torch.split(edited, [len(beams) for beams in flat]), strict=True):
                tensor.copy_(part.reshape(tensor.shape))

    def _rows(self, name: int, token_ids: list[list[int]], count: int) -> list[V1Row]:
        """Return a row per beam; a beam copied from another becomes a resumed request."""
        before = self._known.get(name, [])
        prompt = before[0].prompt_ids if before else list(token_ids[0])
        if token_ids[0][: len(prompt)] != prompt:  # the name is reused
            before, prompt = [], list(token_ids[0])
        rows = []
        for i in range(count):
            outputs = token_ids[min(i, len(token_ids) - 1)][len(prompt) :]
            rows.append(follow(before[i] if i < len(before) else None, self._params, prompt, outputs))
        self._known[name] = rows
        self._known.move_to_end(name)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return rows

    def _fits(self, vocab_size: int) -> bool:
        """Return False if the arguments do not suit the model; an exception would end some or all requests."""
        if vocab_size in self._refused:
            return False
        try:
            check_vocabulary(self._cls, self._params, vocab_size)
        except ValueError as wrong:
            self._refused.add(vocab_size)
            _log.error("%s does not act: %s", self._cls.__qualname__, wrong)
            return False
        return True

    def _host(self, logits: torch.Tensor) -> ExportHost:
        key = (self._cls, logits.shape[1], logits.device)
        if key not in _hosts:
            _hosts[key] = ExportHost(self._cls, logits.shape[1], logits.device)
        return _hosts[key]


def _on_stream(stream_ptr: int | None, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    if stream_ptr is None or device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(stream_ptr, device=device))  # type: ignore[no-untyped-call]


class ExportedSingle:
    """An lpkit processor for a request of TensorRT-LLM; :func:`lpkit.export.tensorrt_llm` makes it.

    Args:
        requests: the requests to edit.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def __call__(
        self,
        req_id: int,
        logits: torch.Tensor,
        token_ids: list[list[int]],
        stream_ptr: int | None = None,
        client_id: int | None = None,
    ) -> None:
        """Edit a request's logits in place.

        Args:
            req_id: the engine's name of the request.
            logits: ``[..., beams, vocab]``.
            token_ids: prompt and outputs of each beam.
            stream_ptr: the CUDA stream of the logits; None: the current one.
            client_id: not used.
        """
        self._requests.edit([req_id], [logits], [token_ids], stream_ptr)


class ExportedBatched:
    """An lpkit processor for all requests of TensorRT-LLM; :func:`lpkit.export.tensorrt_llm_batched` makes it.

    Args:
        requests: the requests to edit.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def __call__(
        self,
        req_ids: list[int],
        logits: list[torch.Tensor],
        token_ids: list[list[list[int]]],
        stream_ptr: int | None = None,
        client_ids: list[int | None] | None = None,
    ) -> None:
        """Edit the logits of many requests in place.

        Args:
            req_ids: the engine's names of the requests.
            logits: of each request, ``[..., beams, vocab]``.
            token_ids: of each request and beam: prompt and outputs.
            stream_ptr: the CUDA stream of the logits; None: the current one.
            client_ids: not used.
        """
        self._requests.edit(req_ids, logits, token_ids, stream_ptr)
