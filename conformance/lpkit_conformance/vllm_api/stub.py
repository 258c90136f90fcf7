"""A stand-in for the few vLLM modules that plugins import, for machines whose vLLM is absent or broken.

It has the two interfaces and the helpers that third-party processors use. It cannot serve a model.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import inspect
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any, ClassVar
from unittest import mock

import torch
from lpkit import v1, v2
from lpkit.interfaces import lookup
from lpkit.interfaces import v1_interface as own_v1
from lpkit.interfaces.sampling_params import SamplingType
from lpkit.runtime.batch.buffers import HostBackedTensor, StagedTensor
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.vllm_api import parts
from lpkit_conformance.vllm_api.facts import VLLM

BUFFERS = "vllm.v1.worker.gpu.buffer_utils"

CHANGES = ("AddedRequest", "MovedRequest", "RemovedRequest")
INTERFACE = ("BatchUpdate", "LogitsProcessor", "MoveDirectionality", *CHANGES)
STATE = ("BatchUpdate", "BatchUpdateBuilder", "LogitsProcessors", *CHANGES)
"""V1's names, by the vLLM module that has them."""

EARLIER = "vllm.transformers_utils.tokenizer"
"""A module of earlier releases, which plugins still import."""


class AdapterLogitsProcessor(v1.LogitsProcessor):
    """vLLM's V1 adapter for request-level callables, with its way of counting parameters."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.req_info: dict[int, partial[torch.Tensor]] = {}

    @abstractmethod
    def new_req_logits_processor(self, params: SamplingParams) -> Any:
        """Return the request's callable, or None."""

    def _new_state(
        self, params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]
    ) -> partial[torch.Tensor] | None:
        call = self.new_req_logits_processor(params)
        if not call:
            return None
        if len(inspect.signature(call).parameters) != 3:
            return partial(call, output_ids)
        if prompt_ids is None:
            raise ValueError("this logits processor needs the prompt's token ids, and the request has none")
        return partial(call, prompt_ids, output_ids)

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        v1.process_dict_updates(self.req_info, batch_update, self._new_state)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, call in self.req_info.items():
            view = logits[row]
            edited = call(view)
            if edited is not view:
                logits[row] = edited
        return logits


class UvaBackedTensor(HostBackedTensor):
    """vLLM's buffer with its authoritative copy on the host, as V2 processors use it for their own parameters.

    Attributes:
        home: the device of ``.gpu`` of new buffers; vLLM's class takes the current device.
    """

    home: ClassVar[torch.device] = torch.device("cpu")

    def __init__(self, size: int | Sequence[int], dtype: torch.dtype, max_concurrency: int | None = None) -> None:
        super().__init__(size, dtype, self.home)  # type: ignore[arg-type]

    def copy_to_uva(self, n: int | None = None) -> torch.Tensor:
        """Publish the host values; ``.gpu`` is a new tensor."""
        self.flush()
        if n is not None:
            self.gpu = self.gpu[:n]
        return self.gpu


@contextmanager
def buffers_on(device: torch.device) -> Iterator[None]:
    """Within it, ``UvaBackedTensor`` has its device side on ``device``."""
    before, UvaBackedTensor.home = UvaBackedTensor.home, device
    try:
        yield
    finally:
        UvaBackedTensor.home = before


class StagedWriteTensor(StagedTensor):
    """vLLM's buffer with staged writes."""

    def __init__(
        self,
        size: int | Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        max_concurrency: int | None = None,
        uva_instead_of_gpu: bool = False,
    ) -> None:
        super().__init__(size if isinstance(size, int) else (size[0], size[1]), dtype, device)

    def clear_staged_writes(self) -> None:
        self._places.clear()
        self._values.clear()


LENT: dict[str, Any] = {"UvaBackedTensor": UvaBackedTensor, "StagedWriteTensor": StagedWriteTensor}


def lend_buffers(device: torch.device) -> None:
    """Give an installed vLLM the stand-in's buffers where its own, which need a GPU, cannot be made.

    vLLM's CPU worker does the same when an engine starts.
    """
    UvaBackedTensor.home = device
    module = _module_of_buffers(device)
    if module is not None:
        vars(module).update(LENT)


@contextmanager
def lent_buffers(device: torch.device) -> Iterator[None]:
    """The same for a while."""
    module = _module_of_buffers(device)
    with buffers_on(device), mock.patch.multiple(module, **LENT) if module else contextlib.nullcontext():
        yield


def _module_of_buffers(device: torch.device) -> ModuleType | None:
    """vLLM's, if vLLM is installed and its buffers do not work on ``device``."""
    if device.type == "cuda" or is_installed():
        return None
    with contextlib.suppress(ImportError):  # a vLLM of before V2 has no such module
        return importlib.import_module(BUFFERS)
    return None


class VllmConfig:
    """A name to annotate with."""


class VLLMValidationError(Exception):
    """Not a ``ValueError``, as in newer releases: a plugin that raises it from ``validate_params`` relies on vLLM."""

    def __init__(self, message: str, **_: Any) -> None:
        super().__init__(message)


def async_tensor_h2d(
    data: Any, device: Any = None, dtype: torch.dtype | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return host data as a tensor on the device, or in ``out``."""
    host = torch.as_tensor(data, dtype=dtype or (None if out is None else out.dtype))
    return host.to(device, non_blocking=True) if out is None else out.copy_(host, non_blocking=True)


def contents() -> dict[str, dict[str, Any]]:
    """Return the names of each module of the stand-in."""
    interface = {name: getattr(v1, name) for name in v1.__all__}
    builtin = f"{lookup.V1_MODULE}.builtin"
    builtins = {
        name: parts.name_only(builtin, name, v1.LogitsProcessor)
        for name in ("MinTokensLogitsProcessor", "LogitBiasLogitsProcessor", "MinPLogitsProcessor")
    }
    loading = {
        "AdapterLogitsProcessor": AdapterLogitsProcessor,
        "LOGITSPROCS_GROUP": lookup.GROUP,
        "BUILTIN_LOGITS_PROCESSORS": list(builtins.values()),
        "STR_POOLING_REJECTS_LOGITSPROCS": parts.STR_POOLING_REJECTS_LOGITSPROCS,
        "STR_SPEC_DEC_REJECTS_LOGITSPROCS": parts.STR_SPEC_DEC_REJECTS_LOGITSPROCS,
        "_load_custom_logitsprocs": parts._load_custom_logitsprocs,
    }
    tokenizers = {
        name: getattr(parts, name)
        for name in ("TokenizerLike", "get_tokenizer", "cached_get_tokenizer", "cached_tokenizer_from_config")
    }
    second = {name: getattr(v2, name) for name in v2.__all__}
    params = {"SamplingParams": SamplingParams}
    return {
        "vllm": {
            **params,
            "LLM": parts.name_only("vllm", "LLM"),
            "__version__": VLLM.developed_with,
            "__lpkit_standin__": True,
        },
        "vllm.sampling_params": {**params, "SamplingType": SamplingType},
        "vllm.config": {"VllmConfig": VllmConfig},
        "vllm.exceptions": {"VLLMValidationError": VLLMValidationError},
        "vllm.logger": {"init_logger": parts.init_logger, "logger": parts.init_logger("vllm.logger")},
        "vllm.logits_process": {"LogitsProcessor": own_v1.RequestLogitsProcessor},
        "vllm.tokenizers": tokenizers,
        "vllm.transformers_utils": {},
        EARLIER: {name: tokenizers[name] for name in ("get_tokenizer", "cached_tokenizer_from_config")},
        "vllm.triton_utils": parts.triton_utils(),
        "vllm.utils": {},
        "vllm.utils.gpu_sync_debug": {"gpu_sync_allowed": parts.gpu_sync_allowed},
        "vllm.utils.torch_utils": {"PIN_MEMORY": False, "async_tensor_h2d": async_tensor_h2d},
        "vllm.v1": {},
        "vllm.v1.sample": {},
        lookup.V1_MODULE: {
            **{name: value for name, value in interface.items() if name not in CHANGES},
            **builtins,
            **loading,
        },
        f"{lookup.V1_MODULE}.interface": {name: interface[name] for name in INTERFACE},
        f"{lookup.V1_MODULE}.state": {name: interface[name] for name in STATE},
        builtin: {"process_dict_updates": v1.process_dict_updates, **builtins},
        "vllm.v1.worker": {},
        "vllm.v1.worker.gpu": {},
        BUFFERS: LENT,
        "vllm.v1.worker.gpu.sample": {},
        lookup.V2_MODULE: second,
        f"{lookup.V2_MODULE}.interface": second,
    }


@cache
def _modules() -> dict[str, ModuleType]:
    """Return the stand-in's modules, by name; created once, so that a class stays the same object."""
    modules = {}
    for name, members in contents().items():
        modules[name] = module = ModuleType(name, "lpkit's stand-in for this module of vLLM")
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        vars(module).update(members)
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    return modules


class _NoMore(importlib.abc.MetaPathFinder):
    """Reports the missing part when a plugin imports another part of vLLM."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.startswith("vllm."):
            raise ModuleNotFoundError(parts.missing(name), name=name)
        return None


def is_installed() -> bool:
    """True if ``import vllm`` gives the stand-in."""
    return bool(getattr(sys.modules.get("vllm"), "__lpkit_standin__", False))


_no_more = _NoMore()


def install() -> None:
    """Put the stand-in's modules where a plugin's imports find them; a broken vLLM's remains go."""
    if is_installed():
        return
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]
    sys.modules.update(_modules())
    sys.meta_path.insert(0, _no_more)


def remove(before: Mapping[str, ModuleType]) -> None:
    """Undo :func:`install`; ``before``: the modules that it displaced."""
    for name in _modules():
        sys.modules.pop(name, None)
    sys.modules.update(before)
    sys.meta_path.remove(_no_more)
