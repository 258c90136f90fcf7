"""The plan of a run on a target. Free of torch, so that the supervising process starts at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lpkit_conformance.errors import UsageError
from lpkit_conformance.facts.vllm import Release
from lpkit_conformance.programs.as_json import program_from_json, program_to_json
from lpkit_conformance.programs.generate import Program
from lpkit_conformance.settings.cases import Case, Requests

DEVICES = ("auto", "cpu", "cuda")

_PLAIN = frozenset({"vocab_size", "max_num_seqs", "seed", "device", "alone"})
_LISTS = frozenset({"hosts", "select", "ignore", "first", "trace", "release"})
"""Fields of a plan that JSON holds as they are, and those that it holds as lists."""


@dataclass(frozen=True)
class Plan:
    """The checks to run, and how.

    Attributes:
        hosts: names from ``v1`` and ``v2``; None means those whose interface the class implements.
        select, ignore: codes or prefixes of codes; no ``select`` means all.
        first: codes of checks to run before the others.
        alone: run the selection without the checks that it requires.
        requests: requests of the checks, where an earlier process of this run has found them.
        program: run only this program, in the single selected check.
        trace: replay only this recorded trace, in this pattern, in the single selected check.
        release: apply the rules of this release of vLLM; None: of the newest.
        bystanders: processes that this process, not the plugin, has started; None: those running when the checks begin.
    """

    cases: tuple[Case, ...] = (Case(),)
    hosts: tuple[str, ...] | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    vocab_size: int = 512
    max_num_seqs: int = 8
    seed: int = 0
    device: str = "cpu"
    standin: bool = False
    first: tuple[str, ...] = ()
    alone: bool = False
    requests: Requests | None = None
    program: Program | None = None
    trace: tuple[str, str] | None = None
    release: Release | None = None
    bystanders: frozenset[int] | None = None

    def wants(self, code: str) -> bool:
        return (not self.select or code.startswith(self.select)) and not self.ignores(code)

    def ignores(self, code: str) -> bool:
        return code.startswith(self.ignore)

    def to_json(self) -> dict[str, Any]:
        """Everything but ``standin`` and ``bystanders``, which the process that runs the plan sets for itself."""
        return {
            "cases": [case.to_json() for case in self.cases],
            "hosts": None if self.hosts is None else list(self.hosts),
            "select": list(self.select),
            "ignore": list(self.ignore),
            "vocab_size": self.vocab_size,
            "max_num_seqs": self.max_num_seqs,
            "seed": self.seed,
            "device": self.device,
            "first": list(self.first),
            "alone": self.alone,
            "requests": None if self.requests is None else self.requests.to_json(),
            "program": None if self.program is None else program_to_json(self.program),
            "trace": None if self.trace is None else list(self.trace),
            "release": None if self.release is None else list(self.release),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], complete: bool = True) -> Plan:
        """Inverse of :meth:`to_json`; a key that is missing has its default.

        Args:
            complete: False leaves the fields of the cases to a process that has vLLM's class.

        Raises:
            CaseError, FailureFileError: a case or the program does not fit.
        """
        given = {key: value for key, value in data.items() if value is not None}
        values: dict[str, Any] = {key: given[key] for key in given.keys() & _PLAIN}
        values |= {key: tuple(given[key]) for key in given.keys() & _LISTS}
        if cases := given.get("cases"):
            values["cases"] = tuple(Case.parse(case, complete) for case in cases)
        if "requests" in given:
            values["requests"] = Requests.from_json(given["requests"])
        if "program" in given:
            values["program"] = program_from_json(given["program"])
        return cls(**values)


def resolve_device(device: str) -> str:
    """``cpu`` or ``cuda``; ``auto`` is CUDA when a GPU is present."""
    if device not in DEVICES:
        raise UsageError(f"device must be one of {', '.join(DEVICES)}, not {device!r}")
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise UsageError("no CUDA device is available; use --device cpu")
    return "cpu"
