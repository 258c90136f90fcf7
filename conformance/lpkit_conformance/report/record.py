"""What ``lpkit record`` tells about workloads and the traces that it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lpkit_conformance.recording.workloads import Workload


def index(workloads: Iterable[Workload]) -> Iterator[str]:
    """Every workload, a line each."""
    for workload in workloads:
        yield f"{workload.trace_name:12}  {workload.summary}"


def written(path: Path, recorded: Mapping[str, Any]) -> str:
    """One trace."""
    return f"{path}: {recorded['steps']} steps, {recorded['requests']} requests, {recorded['runner_class']}"
