"""Things that an entry point should not name, and classes that another process cannot find."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v1

from zoo.portable_correct import PortableBias
from zoo.registry import defect, replaced
from zoo.v1_correct import Bias


class Duck:
    """All the methods, none of the base classes."""

    CASE = {"extra_args": {"bias": 2.5, "token": 7}}

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.inner = Bias(vllm_config, device, is_pin_memory)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        self.inner.update_state(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return self.inner.apply(logits)


defect("LP001", "every method, no base class", style="packaging")(Duck)
defect("LP001", "the entry point names an instance", style="packaging", name="Instance", case=Bias.CASE)(
    object.__new__(Bias)
)


def factory(*args: Any) -> Bias:
    """A function that makes processors is not a class."""
    return Bias(*args)


defect("LP001", "the entry point names a factory", style="packaging", case=Bias.CASE)(factory)


def made_in_a_function() -> type[v1.LogitsProcessor]:
    class Local(Bias):
        pass

    return Local


defect("LP003", "a class made in a function", style="packaging", case=Bias.CASE)(made_in_a_function())


class Shadowed(PortableBias):
    """Found under its name is another class, as after a decorator that wraps it."""


defect("LP003", "its name leads to another class", style="packaging", case=PortableBias.CASE)(Shadowed)
Shadowed = type("Shadowed", (PortableBias,), {"__module__": __name__})  # type: ignore[misc]

Script = type("Script", (PortableBias,), {"__module__": "__main__", "__qualname__": "Script"})
defect("LP005", "defined in a script", style="packaging", name="Script", case=PortableBias.CASE)(Script)

# No CUDA here to initialise: the check is shown a process in which the import has done it.
defect(
    "LP002",
    "its module makes a CUDA tensor when imported (pretended)",
    style="packaging",
    name="CudaAtImport",
    case=PortableBias.CASE,
    surroundings=lambda: replaced(torch.cuda, "is_initialized", lambda: True),
)(PortableBias)
