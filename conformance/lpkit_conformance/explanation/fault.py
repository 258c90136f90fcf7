"""What is at fault: found by running a small failing program once more, with the author's lines noted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.hosts import Host, PluginError
from lpkit_conformance.instruments.edits import NoteEdits
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.subject.subject import Subject


@dataclass(frozen=True)
class Fault:
    """What a second look at a failing step says.

    Attributes:
        line: ``file:line`` of the author's statement that edited the row that differs; of one that came back as it
            went, the last that wrote to logits at all.
        read: whether a new instance, told of the step's requests only, gives the same wrong row: then what ``apply``
            reads is at fault, and nothing that the plugin carried along.
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
    edited, read = "", False
    again: torch.Tensor | None = None

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        nonlocal again
        if method != "apply":
            yield
            return
        if host.step == mismatch.step:
            again = _row_anew(host, args, mismatch.row)
        notes.append(NoteEdits(args[0], mismatch.row))
        with notes[-1]:
            yield

    with contextlib.suppress(PluginError):
        host = make_host(subject, max_num_seqs)
        with host.driver.watched(watch):
            for seen in host.run(ops):
                if seen.step == mismatch.step and notes:
                    edited = notes[-1].edited or edited
                    if any(item.request == mismatch.request for item in seen.rows):
                        read = again is not None and torch.equal(again, seen.after[mismatch.row])
                        break
    wrote = [line for note in notes for line in (note.computed, note.wrote) if line]
    return Fault(edited or (wrote[-1] if wrote else ""), read)


def _row_anew(host: Host, args: tuple[Any, ...], row: int) -> torch.Tensor | None:
    """What a new instance makes of a row of this call; None if there is no such row, or no telling."""
    before, *context = args
    if row >= before.shape[0]:
        return None
    with contextlib.suppress(PluginError):
        driver = host.anew()
        if driver is not None:
            return driver.edit_copy(before, *context)[row]
    return None
