"""Calls that wait for a device are recorded by the name that the author uses; other calls are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lpkit_conformance.instruments.meta_kernels import META
from lpkit_conformance.instruments.waits import NoteReads, NoteSends

HOST = torch.tensor([1, 2])


def there(logits: torch.Tensor) -> torch.Tensor:
    return torch.zeros(2, dtype=torch.int64, device=logits.device)


WAITING: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "a tensor of a list": (lambda logits: torch.tensor([1, 2], device=logits.device), "tensor"),
    "a tensor of a number": (lambda logits: logits.new_tensor(3.0), "new_tensor"),
    "a tensor of an array": (lambda logits: torch.as_tensor(np.arange(3), device=logits.device), "as_tensor"),
    "to": (lambda logits: HOST.to(logits.device), "to"),
    "to another tensor's device": (lambda logits: HOST.to(logits), "to"),
    "copy_": (lambda logits: logits[0, :2].copy_(HOST), "copy_"),
    "a part that is set": (lambda logits: logits[0].__setitem__(slice(0, 2), HOST.float()), "indexing from the host"),
    "rows by a list": (lambda logits: logits[[0, 1]], "indexing from the host"),
    "columns by a list": (lambda logits: logits.__setitem__((0, [1, 2]), 0.0), "indexing from the host"),
    "rows by an array": (lambda logits: logits[np.arange(2)], "indexing from the host"),
    "rows by a tensor on the host": (lambda logits: logits[HOST], "indexing from the host"),
    "an edit by a tensor on the host": (lambda logits: logits.index_put_((HOST,), logits[0, 0]), "index_put_"),
}
GOING_ON: dict[str, Callable[[torch.Tensor], Any]] = {
    "a copy that is not waited for": lambda logits: HOST.to(logits.device, non_blocking=True),
    "a copy_ that is not waited for": lambda logits: logits[0, :2].copy_(HOST, non_blocking=True),
    "a tensor of the host": lambda logits: torch.tensor([1, 2]),
    "a tensor that is there": lambda logits: torch.as_tensor(there(logits), device=logits.device),
    "a number": lambda logits: logits.__setitem__((0, 3), -1.0),
    "a constant": lambda logits: torch.full((3,), 2.0, device=logits.device),
    "indices that are there": lambda logits: logits[there(logits)],
    "slices": lambda logits: logits[:1, 2:],
    "another type": lambda logits: logits.to(torch.float64),
}


@pytest.mark.parametrize(("call", "name"), WAITING.values(), ids=WAITING)
def test_a_copy_that_waits_is_noted_with_its_line(call: Callable[[torch.Tensor], Any], name: str) -> None:
    with NoteSends() as sends:
        call(torch.zeros(4, 8, device=META))
    ((called, line),) = sends.waits
    assert called == name
    assert line.startswith(f"{__file__}:")


@pytest.mark.parametrize("call", GOING_ON.values(), ids=GOING_ON)
def test_what_does_not_wait_is_not_noted(call: Callable[[torch.Tensor], Any]) -> None:
    with NoteSends() as sends:
        call(torch.zeros(4, 8, device=META))
    assert not sends.waits


def test_on_the_host_nothing_is_sent() -> None:
    with NoteSends() as sends:
        torch.zeros(4)[[1, 2]] = torch.tensor([1.0, 2.0])
    assert not sends.waits


def test_values_that_are_read_are_noted_with_their_lines() -> None:
    logits = torch.arange(4.0)
    with NoteReads() as reads:
        logits.sum().item()
        logits[logits > 1]
    assert [name for name, _ in reads.waits] == ["item", "boolean index"]
    assert len({line for _, line in reads.waits}) == 2


@pytest.mark.gpu
def test_a_gpu_waits_where_it_is_noted_and_nowhere_else() -> None:
    logits = torch.zeros(4, 8, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for call, _ in WAITING.values():
            with pytest.raises(RuntimeError, match="synchroniz"):
                call(logits)
        for call in GOING_ON.values():
            call(logits)
    finally:
        torch.cuda.set_sync_debug_mode("default")
