"""LP8, continued: data that a plugin stages while earlier steps are in flight."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from lpkit_conformance.checks.base import STATE, Check
from lpkit_conformance.checks.ladder import mixed_arrivals, parted
from lpkit_conformance.checks.lazily import Subject, calls, hostile, in_flight, torch
from lpkit_conformance.checks.lp8_v2 import HostileCheck
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Step
from lpkit_conformance.results import Failed, Skipped
from lpkit_conformance.subject.worlds import World
from lpkit_conformance.vllm_api.runners import V2

STAGES = 2
"""Stages of the pipeline; one step more than stages is in flight."""

CHANGES = 8
"""Steps in each of which a request arrives and another leaves."""


class LP810(Check):
    """Staging buffers are not reused while a copy from them is in flight.

    The host prepares steps before the device has run the earlier ones: as many as the pipeline has stages, and one
    more. A copy from pinned memory with ``non_blocking=True`` reads its bytes when the device reaches it. lpkit runs
    the plugin on a model of such a device. The model reads the bytes as late as possible: just before the host prepares
    the first step that may reuse the buffer.

    Why: a request is processed with values that were staged for a later step, or for another request if the slot was
    reused. This happens only under load, when the device lags, and never on a CPU.

    Fix: stage in a new tensor each time: `torch.tensor(values, pin_memory=True).to(device, non_blocking=True)`, or
    vLLM's `async_tensor_h2d`. Alternatively use a ring of `vllm_config.max_concurrent_batches` buffers (two at least),
    or wait for an event that was recorded after the copy before you write into its source.
    """

    code, name, hosts, method, once = "LP810", "staging-in-flight", (V2,), STATE, True
    requires = (*HostileCheck.requires, "LP601", "LP602")

    def run(self, subject: Subject) -> str | None:
        cpu = torch.device("cpu")
        # On a device "cuda" most plugins pin what they send. Plugins that need more of a GPU than its name, for
        # fused kernels, are judged on the CPU.
        devices = (cpu,) if subject.setup.device.type == in_flight.DEVICE.type else (in_flight.DEVICE, cpu)
        subject = subject.having(device=cpu)
        for device in devices:
            try:
                return f"{_judge(subject, STAGES, device) or 'no'} copies from pinned memory"
            except calls.PluginError:
                continue
            except Failed:
                _judge(subject, 1, device)  # better evidence, if it fails there, too
                raise
        raise Skipped("the plugin needs more of a GPU than a model of one has")


def _judge(subject: Subject, stages: int, device: torch.device) -> int:
    """Count the plugin's copies from pinned memory, with this many pipeline stages.

    Raises:
        Failed: if a copy that is done late changes a row.
    """
    there = subject.within(World(f"{stages} pipeline stages", partial(_furnish, stages)))
    prompt, copies = _observe(there, in_flight.InFlight(stages + 1), device)
    early = [item for item in copies if item.overwritten]
    if not early:
        return len(copies)
    late, _ = _observe(there, in_flight.InFlight(stages + 1, copies), device)
    place = parted(prompt, late)
    if place is None:
        return len(copies)
    step, row = place
    blamed = [item for item in early if item.step <= step][-1]
    raise Failed(
        "a copy from pinned memory that is done late shows what was staged for a later step",
        {
            "request": next(seen.rows[row].request for seen in prompt if seen.step == step),
            "step": str(step),
            "steps in flight": f"{stages + 1} (pipeline stages: {stages})",
            "copied": f"by {blamed.method} in step {blamed.step}",
        },
        "the logits of a device that copies at once",
        "other logits: the source was overwritten before the copy was done",
        location=blamed.location,
    )


def _furnish(stages: int, config: Any) -> None:
    config.parallel_config.pipeline_parallel_size = stages
    config.scheduler_config.async_scheduling = True


def _observe(
    subject: Subject, flight: in_flight.InFlight, device: torch.device
) -> tuple[list[calls.Observation], list[in_flight.Copy]]:
    subject.plugin.restore_modules()  # a cache may hold what an earlier run has sent
    with flight.events():
        host = hostile.HostAhead(subject, flight, device)
        with host.driver.watched(host.watch):
            return list(host.run(_ops())), flight.copies


def _ops() -> Iterator[Op]:
    yield from mixed_arrivals(3)
    for number in range(CHANGES):
        yield Arrive(f"x{number}", None if number % 4 == 3 else number)
        yield Step()
        yield Finish(f"x{number}")
