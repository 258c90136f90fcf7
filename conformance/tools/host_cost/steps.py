"""A steady step of a reference plugin, or of vLLM's own processor, from the engine's first call to its last."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
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
from lpkit_conformance.hosts.steady import SteadyBatch, update_with
from lpkit_conformance.settings import project
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.vllm_api.stub import buffers_on

ROOT = Path(__file__).parents[3]
PLUGINS = sorted((ROOT / "reference_plugins").glob("lpkit-*"))
sys.path.append(str(ROOT / "benchmarks"))
BATCHES = (8, 256)
CONTEXT = 100
CPU = torch.device("cpu")


class Where(NamedTuple):
    """The device of the logits, and the number of tokens in the vocabulary.

    On a CPU the driver does nothing, so that the vocabulary's size is of no account.
    """

    device: torch.device = CPU
    vocab: int = 1000

    @property
    def few(self) -> int:
        """Tokens of the vocabulary for operations on all of it: on a CPU few, because a GPU would compute them."""
        return 16 if self.device == CPU else self.vocab

    def requests(self, batch: int) -> SteadyBatch:
        with mock.patch.object(steady, "HEADROOM", 4096):
            return SteadyBatch(batch, self.vocab, CONTEXT, 1.0, self.device)


HERE = Where()


class Step(NamedTuple):
    """A step to measure.

    Attributes:
        name, runner, batch: of the processor, ``v1`` or ``v2``, and number of requests.
        of_vllm: True for vLLM's own processor.
        prepare: gives every request a token, as the engine does between two steps.
        change: the same, and some requests leave and others come.
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
    change: Callable[[], None]
    hurry: Callable[[], None]
    call: Callable[[], Any]
    processor: Any
    budget: int | None = None


def plugins(names: set[str] | None = None) -> Iterator[tuple[str, type, Mapping[str, Any]]]:
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


def of_plugin(name: str, cls: Any, case: Mapping[str, Any], runner: str, batch: int, where: Where = HERE) -> Step:
    """Return a plugin's step; all requests use the plugin."""
    requests = where.requests(batch)
    candidate: Any = parts_of(runner).candidate("plugin", cls, Parameters(case), where.device)
    with buffers_on(where.device):
        candidate.prepare(requests, requests.change())
        candidate.follow()
    logits = torch.zeros(batch, where.vocab, device=where.device)
    context, outputs = requests.context(where.device), [request.output_token_ids for request in requests.rows]

    def prepare() -> None:
        requests.advance()
        candidate.prepare(requests, requests.no_change())
        candidate._update = None  # as V1 says that nothing changed

    def change() -> None:
        requests.advance()
        candidate.prepare(requests, requests.change())
        outputs[:] = [request.output_token_ids for request in requests.rows]

    processor = candidate.driver.processor
    if runner == "v1":

        def hurry() -> None:
            for output in outputs:
                output.append(1)

        def call() -> None:
            processor.update_state(candidate._update)
            processor.apply(logits)

    else:

        def hurry() -> None:
            nonlocal context
            context, candidate._ctx = candidate._ctx, context  # like an engine's, another object in each step

        def call() -> None:
            for slot, params in candidate._entered:
                processor.add_request(slot, params)
            processor.apply_staged_writes()
            processor.apply(logits, candidate._ctx)

    budget = None
    if issubclass(cls, lpkit.LogitsProcessor):
        budget = 1 if cls._sparse and cls.history == "none" else 2
    return Step(name, runner, batch, False, prepare, change, hurry, call, processor, budget)


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


def vllms_own(name: str, batch: int, where: Where = HERE) -> Iterator[Step]:
    """Return the steps of vLLM's own processors for a plugin: on V2 without staged writes where nothing changed, and on
    V1 of a CPU without what they compute of the whole vocabulary, which is another device's work."""
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(**COUNTERPARTS[name])
    yield from _own_on_v2(name, params, batch, where)
    yield _own_on_v1(name, params, batch, where)


class _MinP:
    """V2's min-p, as vLLM's ``SamplingStates`` holds it."""

    def __init__(self, kernels: Any, slots: int) -> None:
        buffers = import_module("vllm.v1.worker.gpu.buffer_utils")
        self._kernels, self._held = kernels, buffers.UvaBackedTensor(slots, dtype=torch.float32)

    def add_request(self, slot: int, params: Any) -> None:
        self._held.np[slot] = params.min_p

    def apply_staged_writes(self) -> None:
        self._held.copy_to_uva()

    def apply(self, logits: torch.Tensor, context: Any) -> None:
        if np.any(self._held.np[context.idx_mapping_np] != 0.0):
            self._kernels.apply_min_p(logits, context.expanded_idx_mapping, self._held.gpu)


def _own_on_v2(name: str, params: Any, batch: int, where: Where) -> Iterator[Step]:
    import vllm.triton_utils as names

    if not names.HAS_TRITON:  # this vLLM is built for CPUs: its kernels are read again with Triton
        import triton

        vars(names).update(triton=triton, tl=triton.language, HAS_TRITON=True)
    if where.device == CPU:  # nothing pins memory here
        vars(import_module("vllm.v1.worker.gpu.buffer_utils"))["is_uva_available"] = lambda: False
    files = {"min-p": "min_p", "allowed-tokens": "logit_bias", "ocr-ngram": None}
    file = files.get(name, name.replace("-", "_"))
    if file is None:
        return
    kernels: Any = reload(import_module(f"vllm.v1.worker.gpu.sample.{file}"))
    requests = where.requests(batch)
    entered, context = requests.change().entered, requests.context(where.device)
    logits, states = torch.zeros(batch, where.vocab, device=where.device), requests.slots.state
    state: Any
    if name == "min-p":
        state = _MinP(kernels, batch)
    elif name == "thinking-budget":
        state = kernels.ThinkingBudgetState(states, THINKING)
    else:
        cls = kernels.PenaltiesState if name == "penalties" else kernels.LogitBiasState
        state = cls(requests.config(where.device), states)

    def prepare() -> None:
        nonlocal context
        requests.advance()
        context = requests.context(where.device)

    def change() -> None:
        nonlocal entered
        entered = requests.change().entered
        prepare()

    def call() -> None:
        if entered:
            for slot, _ in entered:
                state.add_request(slot, params)
            state.apply_staged_writes()
            entered.clear()
        state.apply(logits, context)

    call()
    yield Step(name, "v2", batch, True, prepare, change, lambda: None, call, state)


def _own_on_v1(name: str, params: Any, batch: int, where: Where) -> Step:
    requests = where.requests(batch)
    logits = torch.zeros(batch, where.few, device=where.device)
    update: Any = update_with(requests.change().update, lambda _: params)

    def prepare() -> None:
        nonlocal update
        requests.advance()
        update = None

    def change() -> None:
        nonlocal update
        requests.advance()
        update = update_with(requests.change().update, lambda _: params)

    call = _calls_on_v1(name, requests, logits, where)
    call(update)
    return Step(name, "v1", batch, True, prepare, change, lambda: None, lambda: call(update), call)


def _calls_on_v1(name: str, requests: SteadyBatch, logits: torch.Tensor, where: Where) -> Callable[[Any], Any]:
    """Return the function of a batch update that calls one of V1's own processors."""
    device, size = where.device, requests.size
    if name == "allowed-tokens":
        mask = torch.ones(logits.shape, dtype=torch.bool, device=device)
        mask[:, [3, 7, 11]] = False
        return lambda update: logits.masked_fill_(mask, float("-inf"))
    if name == "penalties":
        # A kernel of vLLM's that is compiled in advance: it changes all logits.
        vars(import_module("vllm._custom_ops"))["apply_repetition_penalties"] = (
            (lambda *_: None) if device == CPU else lambda logits, *_: logits.mul_(1.0)
        )
        apply_all = import_module("vllm.v1.sample.ops.penalties").apply_all_penalties
        prompts = torch.ones(size, CONTEXT, dtype=torch.int64, device=device)
        each = torch.ones(size, device=device)
        texts = [[token % where.few for token in request.output_token_ids] for request in requests.rows]
        return lambda update: apply_all(logits, prompts, each, each, each, texts)
    if name == "thinking-budget":
        holders = import_module("vllm.v1.sample.thinking_budget_state")
        holder = holders.ThinkingBudgetStateHolder(THINKING, size, 0, device, False)

        outputs: list[list[int]] = []

        def on_v1(update: Any) -> None:
            if update:
                outputs[:] = [request.output_token_ids for request in requests.rows]
            holder.sync_batch(update)
            holder.update_state(outputs, None)
            holder.apply_to_logits(logits, True, None)

        return on_v1
    if name == "ocr-ngram":
        logits = torch.zeros(size, where.vocab, device=device)
        cls = import_module("vllms_ocr").ngram_class()
    else:
        builtin = import_module("vllm.v1.sample.logits_processor.builtin")
        cls = {"min-p": builtin.MinPLogitsProcessor, "logit-bias": builtin.LogitBiasLogitsProcessor}[name]
    processor = cls(requests.config(device), device, device != CPU)

    def call(update: Any) -> None:
        processor.update_state(update)
        processor.apply(logits)

    return call


def steps(names: set[str] | None, batches: tuple[int, ...], where: Where = HERE) -> Iterator[Step]:
    """Return all steps, a plugin's next to those of vLLM's own processor."""
    for name, cls, case in plugins(names):
        for batch in batches:
            for runner in ("v1", "v2"):
                yield of_plugin(name, cls, case, runner, batch, where)
            if name in COUNTERPARTS:
                yield from vllms_own(name, batch, where)
