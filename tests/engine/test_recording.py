"""Recording again gives the traces that ship: the same events from the same engine class, whatever was sampled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance import traces
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.recorded_workloads import WORKLOADS
from lpkit_conformance.engine.recording import record, record_to
from lpkit_conformance.vllm_api.runners import V1, V2, Runner
from unusual_engines import needs_v2_drafts

pytestmark = pytest.mark.engine


@pytest.fixture
def v1(processes: Callable[[Runner], EngineProcess]) -> EngineProcess:
    return processes(V1)


@pytest.fixture
def v2(processes: Callable[[Runner], EngineProcess]) -> EngineProcess:
    return processes(V2)


def _structure(trace: traces.Trace) -> dict[str, Any]:
    """Everything of a trace but the engine's version and token ids, which may differ in the last bit of a logit."""
    header, *steps = (json.loads(line) for line in traces.dumps(trace).splitlines())
    for step in steps:
        step["tokens"] = {name: len(ids) for name, ids in step["tokens"].items()}
        for call in step.get("applies", ()):
            del call["inputs"]
    return {
        "runner": trace.runner,
        "workload": trace.workload,
        "driver": trace.engine.driver,
        "runner_class": trace.engine.runner_class,
        "settings": header["settings"],
        "requests": {name: request.prompt_len for name, request in trace.requests.items()},
        "events": sorted({kind for step in trace.steps for kind in traces.kinds(step)}),
        "steps": steps,
    }


def _same(recorded: Path) -> dict[str, Any]:
    """Compare piece by piece, so that a difference is shown at its step."""
    again, shipped = traces.load(recorded), traces.load(recorded.stem)
    new, old = _structure(again), _structure(shipped)
    for index, (ours, theirs) in enumerate(zip(new.pop("steps"), old.pop("steps"), strict=False)):
        assert ours == theirs, f"step {index}"
    assert len(again.steps) == len(shipped.steps)
    assert new == old
    return new


@pytest.mark.parametrize("name", ["v1_churn", "v1_preempt", "v1_async", "v1_sorted", "v1_swaps"])
def test_a_v1_workload_records_as_shipped(v1: EngineProcess, tmp_path: Path, name: str) -> None:
    done = v1.call(record_to, WORKLOADS[name], str(tmp_path / f"{name}.jsonl"))
    _same(tmp_path / f"{name}.jsonl")
    if name != "v1_swaps":
        assert done["runner_class"] == "vllm.v1.worker.cpu_model_runner.CPUModelRunner"


@pytest.mark.parametrize(
    "name",
    [
        "v2_churn",
        "v2_preempt",
        pytest.param("v2_drafts", marks=needs_v2_drafts),
        pytest.param("v2_async", marks=needs_v2_drafts),
    ],
)
def test_a_v2_workload_records_as_shipped(v2: EngineProcess, tmp_path: Path, name: str) -> None:
    done = v2.call(record_to, WORKLOADS[name], str(tmp_path / f"{name}.jsonl"))
    _same(tmp_path / f"{name}.jsonl")
    assert done["runner_class"] == "vllm.v1.worker.cpu.model_runner.CPUModelRunner"


def test_on_v2_asynchronous_scheduling_without_drafts_changes_no_call(v2: EngineProcess) -> None:
    shipped = WORKLOADS["v1_async"]
    assert shipped.settings is not None
    settings = replace(shipped.settings, runner="v2")
    late = v2.call(record, replace(shipped, runner="v2", settings=settings))
    assert late.settings["async_scheduling"] is True
    calls = [call for step in late.v2_steps for call in step.applies]
    assert {kind for step in late.v2_steps for kind in traces.kinds(step)} >= {"resume", "partial prefill"}
    assert len(calls) > 20
    for call in calls:
        assert min(call.inputs) >= 0
        assert call.bounds == tuple(position + 1 for position in call.pos)


def test_the_command_records_into_a_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lpkit_cli.app", "record", "v1_swaps", "-o", str(tmp_path / "new")],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(tmp_path / "new" / "v1_swaps.jsonl"))
    _same(tmp_path / "new" / "v1_swaps.jsonl")
