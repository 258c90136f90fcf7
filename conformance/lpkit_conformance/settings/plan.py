"""The plan of a run on a target. Free of torch, so that the supervising process starts at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lpkit_conformance.errors import UsageError
from lpkit_conformance.programs.as_json import program_from_json, program_to_json
from lpkit_conformance.programs.generate import Program
from lpkit_conformance.settings.cases import Case, Requests
from lpkit_conformance.vllm_api.facts import Release

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Plan:
    """The checks to run, and how.

    Attributes:
        hosts: names from ``v1`` and ``v2``; None means those whose interface the class implements.
        select, ignore: codes or prefixes of codes; no ``select`` means all.
        first: codes of checks to run before the others.
        quick: judge the first case only, except in checks that are quick with each.
        alone: run the selection without the checks that it requires.
        requests: requests of the checks, where an earlier process of this run has found them.
        others: cases that share batches with the only case.
        program: run only this program, in the single selected check.
        trace: replay only this recorded trace, in this pattern, in the single selected check.
        unproven: why passing proves nothing, if it does not: the requests of the trace had other arguments.
        release: apply the rules of this release of vLLM; None: of the newest.
        environment: variables that are set before the plugin is imported.
        model: fields of the model's configuration.
        tokenizer: the folder of the model's tokenizer; empty: lpkit makes one.
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
    quick: bool = False
    alone: bool = False
    requests: Requests | None = None
    others: tuple[Case, ...] = ()
    program: Program | None = field(default=None, metadata={"form": (program_to_json, program_from_json)})
    trace: tuple[str, str] | None = None
    unproven: str = ""
    release: Release | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: str = ""
    bystanders: frozenset[int] | None = None

    def wants(self, code: str) -> bool:
        return (not self.select or code.startswith(self.select)) and not self.ignores(code)

    def ignores(self, code: str) -> bool:
        return code.startswith(self.ignore)


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
