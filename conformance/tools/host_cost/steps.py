"""A steady step of a reference plugin, or of vLLM's own processor, from the engine's first call to its last."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module, reload
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import lpkit
import numpy as np
import torch
from lpkit.loading import resolve_target
from lpkit_conformance.bench.candidates import Parameters
from lpkit_conformance.hosts import parts_of, steady
from lpkit_conformance.hosts.steady import SteadyBatch
from lpkit_conformance.settings import project
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.vllm_api.stub import buffers_on

PLUGINS = sorted((Path(__file__).parents[3] / "reference_plugins").glob("lpkit-*"))
BATCHES = (8, 256)
VOCAB, CONTEXT = 1000, 100
CPU = torch.device("cpu")


class Step(NamedTuple):
    """A step to measure.

    Attributes:
        name, runner, batch: of the processor, ``v1`` or ``v2``, and number of requests.
        of_vllm: True for vLLM's own processor.
        prepare: gives every request a token, as the engine does between two steps.
        hurry: gives every request a token and does nothing else, so that the caches still hold the last step.
        call: the step.
        processor: the object that edits the logits.
        budget: most launches that the step of such a class should take; None for others than classes of one rule.
    """

    name: str
    runner: str
    batch: int
    of_vllm: bool
    prepare: Callable[[], None]
    hurry: Callable[[], None]
    call: Callable[[], Any]
    processor: Any
    budget: int | None = None


def plugins(names: set[str] | None = None) -> Iterator[tuple[str, type, dict[str, Any]]]:
    """Return name, class and first case of each reference plugin."""
    for folder in PLUGINS:
        name = folder.name.removeprefix("lpkit-")
        if names and name not in names:
            continue
        sys.path.insert(0, str(folder / "src"))
        plugin = project.find(folder)
        assert plugin is not None
        target = next(iter(plugin.entry_points.values()))
        yield name, resolve_target(target), Case.parse(plugin.cases[0]).fields
    for name, (cls, arguments) in PLAIN.items():
        if not names or name in names:
            yield name, cls, {"extra_args": arguments}


def _readme() -> Any:
    text = (PLUGINS[0].parents[1] / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    return names["MinP"]


class Multiplies(lpkit.LogitsProcessor):
    """Multiplies chosen logits, as no rule of lpkit does."""

    class Params(lpkit.Params):
        ids: tuple[int, ...]
        factor: float

    ids, factor = lpkit.ragged(torch.int64), lpkit.column(torch.float32)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids[rows]
        logits[ids] = logits[ids] * self.factor[rows].unsqueeze(1)


PLAIN: dict[str, tuple[type, dict[str, Any]]] = {
    "README: MinP": (_readme(), {"min_p": 0.1}),
    "an edit of its own": (Multiplies, {"ids": [3, 7], "factor": 2.0}),
}
"""Classes of torch's operations, and what a request asks of them."""

FEW = 16
"""Tokens of a vocabulary on which operations of torch take no time."""


def _requests(batch: int) -> SteadyBatch:
    with mock.patch.object(steady, "HEADROOM", 4096):
        return SteadyBatch(batch, VOCAB, CONTEXT, 1.0, CPU)


def of_plugin(name: str, cls: Any, case: dict[str, Any], runner: str, batch: int) -> Step:
    """Return a plugin's step; all requests use the plugin."""
    requests = _requests(batch)
    candidate: Any = parts_of(runner).candidate("plugin", cls, Parameters(case), CPU)
    with buffers_on(CPU):
        candidate.prepare(requests, requests.change())
        candidate.follow()
    logits = torch.zeros(batch, VOCAB)
    context, outputs = requests.context(CPU), [request.output_token_ids for request in requests.rows]

    def prepare() -> None:
        requests.advance()
        candidate.prepare(requests, requests.no_change())

    processor = candidate.driver.processor
    if runner == "v1":

        def hurry() -> None:
            for output in outputs:
                output.append(1)

        def call() -> None:
            processor.update_state(None)
            processor.apply(logits)

    else:

        def hurry() -> None:
            nonlocal context
            context, candidate._ctx = candidate._ctx, context  # like an engine's, another object in each step

        def call() -> None:
            processor.apply_staged_writes()
            processor.apply(logits, candidate._ctx)

    budget = None
    if issubclass(cls, lpkit.LogitsProcessor):
        budget = 1 if cls._sparse and cls.history == "none" else 2
    return Step(name, runner, batch, False, prepare, hurry, call, processor, budget)


COUNTERPARTS: dict[str, dict[str, Any]] = {
    "min-p": {"min_p": 0.1},
    "logit-bias": {"logit_bias": {3: 1.0, 7: -2.0}},
    "allowed-tokens": {"allowed_token_ids": [3, 7, 11]},
    "penalties": {"repetition_penalty": 1.2, "presence_penalty": 0.4, "frequency_penalty": 0.3},
    "thinking-budget": {"thinking_token_budget": 4096},
    "ocr-ngram": {"extra_args": {"ngram_size": 2}},
}
"""Plugins with a processor of vLLM's own, and what a request asks of that."""

THINKING = SimpleNamespace(
    reasoning_start_token_ids=[2], reasoning_end_token_ids=[5], natural_reasoning_end_token_ids=[5]
)


def vllms_own(name: str, batch: int) -> Iterator[Step]:
    """Return the steps of vLLM's own processors for a plugin: on V2 only ``apply``, on V1 without what they compute of
    the whole vocabulary, which is another device's work."""
    from vllm.sampling_params import SamplingParams

    params, requests = SamplingParams(**COUNTERPARTS[name]), _requests(batch)
    requests.change()
    context: Any = None

    def prepare() -> None:
        nonlocal context
        requests.advance()
        context = requests.context(CPU)

    edit = _own_on_v2(name, params, requests)
    if edit is not None:
        yield Step(name, "v2", batch, True, prepare, lambda: None, lambda: edit(context), edit)
    call = _own_on_v1(name, params, requests)
    yield Step(name, "v1", batch, True, requests.advance, lambda: None, call, call)


def _own_on_v2(name: str, params: Any, requests: SteadyBatch) -> Callable[[Any], Any] | None:
    import vllm.triton_utils as names

    if not names.HAS_TRITON:  # this vLLM is built for CPUs: its kernels are read again with Triton
        import triton

        vars(names).update(triton=triton, tl=triton.language, HAS_TRITON=True)
    # Nothing pins memory here.
    vars(import_module("vllm.v1.worker.gpu.buffer_utils"))["is_uva_available"] = lambda: False
    files = {"min-p": "min_p", "allowed-tokens": "logit_bias", "ocr-ngram": None}
    file = files.get(name, name.replace("-", "_"))
    if file is None:
        return None
    kernels: Any = reload(import_module(f"vllm.v1.worker.gpu.sample.{file}"))
    logits, states = torch.zeros(requests.size, VOCAB), requests.slots.state
    if name == "min-p":
        held = np.full(requests.size, params.min_p, dtype=np.float32)
        on_device = torch.from_numpy(held)

        def edit(context: Any) -> None:  # as vLLM's SamplingStates.apply_min_p
            if np.any(held[context.idx_mapping_np] != 0.0):
                kernels.apply_min_p(logits, context.expanded_idx_mapping, on_device)

        return edit
    if name == "thinking-budget":
        state = kernels.ThinkingBudgetState(states, THINKING)
    else:
        cls = kernels.PenaltiesState if name == "penalties" else kernels.LogitBiasState
        state = cls(requests.config(CPU), states)
    for slot in range(requests.size):
        state.add_request(slot, params)
    state.apply_staged_writes()
    return lambda context: state.apply(logits, context)


def _own_on_v1(name: str, params: Any, requests: SteadyBatch) -> Callable[[], Any]:
    few = torch.zeros(requests.size, FEW)
    outputs = [request.output_token_ids for request in requests.rows]
    added = [(row, params, [1, 2], output) for row, output in enumerate(outputs)]
    update = lpkit.v1.BatchUpdate(requests.size, [], added, [])
    if name == "allowed-tokens":
        mask = torch.ones(requests.size, FEW, dtype=torch.bool)
        return lambda: few.masked_fill_(mask, float("-inf"))
    if name == "penalties":
        vars(import_module("vllm._custom_ops"))["apply_repetition_penalties"] = lambda *_: None  # on a GPU one kernel
        apply_all = import_module("vllm.v1.sample.ops.penalties").apply_all_penalties
        prompts, each = torch.ones(requests.size, CONTEXT, dtype=torch.int64), torch.ones(requests.size)
        texts = [[token % FEW for token in output] for output in outputs]
        return lambda: apply_all(few, prompts, each, each, each, texts)
    if name == "thinking-budget":
        holders = import_module("vllm.v1.sample.thinking_budget_state")
        holder = holders.ThinkingBudgetStateHolder(THINKING, requests.size, 0, CPU, False)
        holder.sync_batch(update)

        def on_v1() -> None:
            holder.sync_batch(None)
            holder.update_state(outputs, None)
            holder.apply_to_logits(few, True, None)

        return on_v1
    if name == "ocr-ngram":
        few = torch.zeros(requests.size, VOCAB)
        for module in ("torchvision", "torchvision.transforms"):  # of the model's images
            sys.modules.setdefault(module, mock.MagicMock())
        cls = import_module("vllm.model_executor.models.deepseek_ocr").NGramPerReqLogitsProcessor
    else:
        builtin = import_module("vllm.v1.sample.logits_processor.builtin")
        cls = {"min-p": builtin.MinPLogitsProcessor, "logit-bias": builtin.LogitBiasLogitsProcessor}[name]
    processor = cls(requests.config(CPU), CPU, False)
    processor.update_state(update)

    def call() -> None:
        processor.update_state(None)
        processor.apply(few)

    return call


def steps(names: set[str] | None, batches: tuple[int, ...]) -> Iterator[Step]:
    """Return all steps, a plugin's next to those of vLLM's own processor."""
    for name, cls, case in plugins(names):
        for batch in batches:
            for runner in ("v1", "v2"):
                yield of_plugin(name, cls, case, runner, batch)
            if name in COUNTERPARTS:
                yield from vllms_own(name, batch)
