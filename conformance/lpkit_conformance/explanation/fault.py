"""A second look at a small failing program: the line that edited the row, and a new instance's answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation.writes import Writes
from lpkit_conformance.hosts import Host, PluginError
from lpkit_conformance.instruments.edits import NoteEdits
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.subject.subject import Subject


@dataclass(frozen=True)
class Fault:
    """The result of a second look at a failing step.

    Attributes:
        line: ``file:line`` of the author's statement that edited the row that differs; for a row that came back
            unchanged, the last statement that wrote to logits at all, or else the last line of ``apply`` that ran.
        read: True if a new instance that receives only the step's requests gives the same wrong row: then the data
            that ``apply`` reads is at fault, and nothing that the plugin carried along.
    """

    line: str
    read: bool


def look_again(
    subject: Subject,
    ops: Sequence[Op],
    max_num_seqs: int,
    mismatch: Mismatch,
    make_host: Callable[[Subject, int], Host],
) -> Fault:
    """Run a failing program again, up to the step at which a row differs."""
    notes: list[NoteEdits] = []
    read = False
    again: torch.Tensor | None = None
    writes = Writes(subject.plugin.cls)

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        nonlocal again
        if method != "apply":
            yield
            return
        if host.step == mismatch.step:
            again = _row_of_new_instance(host, args, mismatch.row)
        notes.append(NoteEdits(args[0], mismatch.row))
        with notes[-1], writes.around(method, args, lambda: None):
            yield

    with contextlib.suppress(PluginError):
        host = make_host(subject, max_num_seqs)
        with host.driver.watched(watch):
            for seen in host.run(ops):
                if seen.step == mismatch.step and any(item.request == mismatch.request for item in seen.rows):
                    read = again is not None and torch.equal(again, seen.after[mismatch.row])
                    break
    return Fault(notes[-1].line or str(writes.ran or "") if notes else "", read)


def _row_of_new_instance(host: Host, args: tuple[Any, ...], row: int) -> torch.Tensor | None:
    """Return a new instance's result for a row of this call; None if the call lacks the row or cannot be replayed."""
    before, *context = args
    if row >= before.shape[0]:
        return None
    with contextlib.suppress(PluginError):
        driver = host.anew()
        if driver is not None:
            return driver.edit_copy(before, *context)[row]
    return None
