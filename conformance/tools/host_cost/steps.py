"""A steady step of a reference plugin, or of vLLM's own processor, from the engine's first call to its last."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module, reload
from pathlib import Path
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
        own: True for vLLM's own processor.
        prepare: gives every request a token, as the engine does between two steps.
        hurry: gives every request a token and does nothing else, so that the caches still hold the last step.
        call: the step.
        processor: the object that edits the logits.
    """

    name: str
    runner: str
    batch: int
    own: bool
    prepare: Callable[[], None]
    hurry: Callable[[], None]
    call: Callable[[], Any]
    processor: Any


def plugins(names: set[str] | None = None) -> Iterator[tuple[str, type, dict[str, Any]]]:
    """Return name, class and first case of each reference plugin."""
    for folder in PLUGINS:
        name = folder.name.removeprefix("lpkit-")
        if names and name not in names:
            continue
        sys.path.insert(0, str(folder / "src"))
        found = project.find(folder)
        assert found is not None
        target = next(iter(found.entry_points.values()))
        yield name, resolve_target(target), Case.parse(found.cases[0]).fields


def _requests(batch: int) -> SteadyBatch:
    with mock.patch.object(steady, "HEADROOM", 4096):
        return SteadyBatch(batch, VOCAB, CONTEXT, 1.0, CPU)


def of_plugin(name: str, cls: type, case: dict[str, Any], runner: str, batch: int) -> Step:
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

    return Step(name, runner, batch, False, prepare, hurry, call, processor)


COUNTERPARTS: dict[str, dict[str, Any]] = {
    "min-p": {"min_p": 0.1},
    "logit-bias": {"logit_bias": {3: 1.0, 7: -2.0}},
    "allowed-tokens": {"allowed_token_ids": [3, 7, 11]},
    "penalties": {"repetition_penalty": 1.2, "presence_penalty": 0.4, "frequency_penalty": 0.3},
}
"""Plugins with a processor of vLLM's own, and what a request asks of that."""


def vllms_own(name: str, batch: int) -> Iterator[Step]:
    """Return the steps of vLLM's own processor for a plugin: only ``apply``, and on V1 without what it computes of the
    whole vocabulary, which is another device's work."""
    import vllm.sampling_params
    import vllm.triton_utils as names

    if not names.HAS_TRITON:  # this vLLM is built for CPUs: its kernels are read again with Triton
        import triton

        vars(names).update(triton=triton, tl=triton.language, HAS_TRITON=True)
    vars(import_module("vllm.v1.worker.gpu.buffer_utils"))["is_uva_available"] = lambda: (
        False
    )  # nothing pins memory here
    package = "vllm.v1.worker.gpu.sample."
    kernels = {name: reload(import_module(package + name)) for name in ("min_p", "penalties", "logit_bias")}
    params = vllm.sampling_params.SamplingParams(**COUNTERPARTS[name])
    requests = _requests(batch)
    requests.change()
    logits, states = torch.zeros(batch, VOCAB), requests.slots.state
    context: Any = None

    def prepare() -> None:
        nonlocal context
        requests.advance()
        context = requests.context(CPU)

    if name == "min-p":
        held = np.full(batch, params.min_p, dtype=np.float32)
        on_device = torch.from_numpy(held)

        def call() -> None:  # as vLLM's SamplingStates.apply_min_p
            if np.any(held[context.idx_mapping_np] != 0.0):
                kernels["min_p"].apply_min_p(logits, context.expanded_idx_mapping, on_device)

    else:
        cls = kernels["penalties"].PenaltiesState if name == "penalties" else kernels["logit_bias"].LogitBiasState
        state = cls(requests.config(CPU), states)
        for slot in range(batch):
            state.add_request(slot, params)
        state.apply_staged_writes()

        def call() -> None:
            state.apply(logits, context)

    yield Step(name, "v2", batch, True, prepare, lambda: None, call, kernels)
    if name not in ("min-p", "logit-bias"):
        return
    builtin = import_module("vllm.v1.sample.logits_processor.builtin")
    made = {"min-p": builtin.MinPLogitsProcessor, "logit-bias": builtin.LogitBiasLogitsProcessor}[name]
    processor = made(requests.config(CPU), CPU, False)
    added = [(row, params, [1], [1]) for row in range(batch)]
    processor.update_state(lpkit.v1.BatchUpdate(batch, [], added, []))
    few = torch.zeros(batch, 16)

    def on_v1() -> None:
        processor.update_state(None)
        processor.apply(few)

    yield Step(name, "v1", batch, True, requests.advance, lambda: None, on_v1, processor)


def steps(names: set[str] | None, batches: tuple[int, ...]) -> Iterator[Step]:
    """Return all steps, a plugin's next to those of vLLM's own processor."""
    for name, cls, case in plugins(names):
        for batch in batches:
            for runner in ("v1", "v2"):
                yield of_plugin(name, cls, case, runner, batch)
            if name in COUNTERPARTS:
                yield from vllms_own(name, batch)
