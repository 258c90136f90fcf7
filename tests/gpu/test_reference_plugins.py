"""The reference plugins compute on a GPU what they compute on a CPU, without waiting for it, however late it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from device_under_test import DEVICE, HAVE_GPU, all_or
from lpkit.loading import resolve_target
from lpkit.runtime import make_config
from lpkit.v1 import BatchUpdate, MoveDirectionality
from lpkit_conformance.checks.ladder import mixed_arrivals
from lpkit_conformance.hosts import default_host
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Step, Swap
from lpkit_conformance.settings import project
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.stub import lend_buffers

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode")]

PLUGINS = Path(__file__).resolve().parents[2] / "reference_plugins"
NAMES = all_or(sorted(folder.name for folder in PLUGINS.iterdir()), 4)
CALLS = ("update_state", "add_request", "apply_staged_writes", "apply")
LATE_CYCLES = 5_000_000
"""Some milliseconds of doing nothing on the GPU: many steps of the host."""


ROUNDED = {"lpkit-synthid": 1e-3}
"""Tolerance of results: if one token has nearly all probability, the rounding error of the others is large."""


def assert_close(name: str, on_device: list[torch.Tensor], on_cpu: list[torch.Tensor]) -> None:
    for found, expected in zip(on_device, on_cpu, strict=True):
        assert torch.equal(found.isinf(), expected.isinf())
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=ROUNDED.get(name, 1e-5))


@contextmanager
def waiting_forbidden() -> Iterator[None]:
    """Error for every call that makes the host wait for the GPU."""
    if not HAVE_GPU:
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def late() -> None:
    """Delay between this call and the device's work before and after it."""
    if HAVE_GPU:
        torch.cuda._sleep(LATE_CYCLES)


def hurried(cls: type) -> type:
    """The class, with a device that is always late, and no waiting for it."""

    def watched(name: str) -> Any:
        method = getattr(cls, name)

        def call(self: Any, *arguments: Any) -> Any:
            if name == "apply":
                late()
            with waiting_forbidden():
                return method(self, *arguments)

        return call

    return type(cls.__name__, (cls,), {name: watched(name) for name in CALLS})


def subjects(name: str, host: str, device: torch.device, wrap: Any = lambda cls: cls) -> Iterator[Subject]:
    """The plugin with each of its cases."""
    settings = project.find(PLUGINS / name)
    assert settings is not None
    cls = wrap(resolve_target(next(iter(settings.entry_points.values()))))
    for case in settings.cases:
        yield Subject.of(name, cls, host, Case.parse(case), device=device)


OPS: list[Op] = [
    *mixed_arrivals(5),
    Step(6),
    Finish("r1"),
    Arrive("late", 1, 9),
    Step(2),
    Swap(0, 2),
    Step(12),
    Finish("r0"),
    Finish("r3"),
    Step(4),
]


def processed(subject: Subject) -> list[torch.Tensor]:
    """Every step's logits of a short run, with the rows that count."""
    lend_buffers(subject.setup.device)
    try:
        seen = list(default_host(subject, subject.setup.max_num_seqs).run(OPS))
    finally:
        lend_buffers(torch.device("cpu"))
    kept = [torch.tensor([not row.discarded for row in item.rows]) for item in seen]
    return [item.after.cpu()[rows] for item, rows in zip(seen, kept, strict=True)]


@pytest.mark.parametrize("host", ["v1", "v2"])
@pytest.mark.parametrize("name", NAMES)
def test_a_late_device_gives_the_logits_of_the_cpu_without_any_waiting(name: str, host: str) -> None:
    on_cpu = [step for subject in subjects(name, host, torch.device("cpu")) for step in processed(subject)]
    on_device = [step for subject in subjects(name, host, DEVICE, hurried) for step in processed(subject)]
    assert len(on_cpu) == len(on_device) > 40
    assert_close(name, on_device, on_cpu)


@contextmanager
def stream_of_its_own() -> Iterator[None]:
    """All that follows on a stream that is not the device's default."""
    if not HAVE_GPU:
        yield
        return
    with torch.cuda.stream(torch.cuda.Stream()):
        yield
        torch.cuda.synchronize()


@pytest.mark.parametrize("host", ["v1", "v2"])
@pytest.mark.parametrize("name", NAMES)
def test_launches_follow_the_streams_order(name: str, host: str) -> None:
    on_cpu = [step for subject in subjects(name, host, torch.device("cpu")) for step in processed(subject)]
    with stream_of_its_own():
        on_device = [step for subject in subjects(name, host, DEVICE) for step in processed(subject)]
    assert len(on_cpu) == len(on_device) > 40
    assert_close(name, on_device, on_cpu)


def runs_ahead(name: str, device: torch.device) -> list[torch.Tensor]:
    """V1 by hand: requests come, move and go while the device still works on the first step."""
    results = []
    for subject in subjects(name, "v1", device):
        prompts = [subject.model.prompt(f"p{i}", 6, i % 4) for i in range(12)]
        outputs: list[list[int]] = [[] for _ in prompts]
        params = [subject.params(i % 4) for i in range(12)]
        config = make_config(max_num_seqs=4, vocab_size=subject.setup.vocab_size)
        processor = subject.plugin.cls(config, device, device.type == "cuda")
        logits = subject.model.rows([(f"p{i}", i) for i in range(4)])
        rows: list[int] = []
        late()
        with torch.inference_mode(), waiting_forbidden():
            for step, request in enumerate(range(12)):
                row = len(rows) if len(rows) < 4 else step % 4
                rows[row : row + 1] = [request]
                moved = []
                if step % 3 == 2:
                    rows[0], rows[1] = rows[1], rows[0]
                    moved = [(0, 1, MoveDirectionality.SWAP)]
                added = [(row, params[request], prompts[request], outputs[request])]
                processor.update_state(BatchUpdate(len(rows), [], added, moved))
                results.append(processor.apply(logits[: len(rows)].clone()))
                for item in rows:
                    outputs[item].append(subject.model.emit(f"p{item}", item % 4, len(outputs[item])))
    return [result.cpu() for result in results]


@pytest.mark.parametrize("name", NAMES)
def test_a_host_that_runs_ahead_overwrites_nothing_that_the_device_still_reads(name: str) -> None:
    expected, found = runs_ahead(name, torch.device("cpu")), runs_ahead(name, DEVICE)
    assert len(found) >= 12
    assert_close(name, found, expected)
