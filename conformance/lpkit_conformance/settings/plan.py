"""What to run on a target. Free of torch, so that the process that only watches starts at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from lpkit_conformance.errors import UsageError
from lpkit_conformance.programs.generate import Program
from lpkit_conformance.results import Status
from lpkit_conformance.settings.cases import Case

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        hosts: of ``v1`` and ``v2``; None means those whose interface the class implements.
        select, ignore: codes or prefixes of codes; no ``select`` means all.
        first: codes of checks to run before the others.
        alone: run what is selected without the checks that it requires.
        done: ``CODE[host]`` labels that need not run again, with their statuses.
        roots: by label, for those of ``done`` that are blocked, the codes of the failed checks that block them.
        raised: exceptions that these checks have reported, by type and line, with the code of the first.
        program: run only this one, in the one check that is selected.
        trace: replay only this recorded trace, in this pattern, in the one check that is selected.
        release: judge by the rules of this release of vLLM; None: of the newest.
        bystanders: processes that this one has started and the plugin has not; None: those there when the checks begin.
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
    done: dict[str, Status] = field(default_factory=dict)
    roots: dict[str, tuple[str, ...]] = field(default_factory=dict)
    raised: dict[tuple[str, str], str] = field(default_factory=dict)
    program: Program | None = None
    trace: tuple[str, str] | None = None
    release: tuple[int, int, int] | None = None
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
