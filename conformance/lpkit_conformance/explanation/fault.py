"""A second look at a small failing program: the line that edited the row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation.writes import Writes
from lpkit_conformance.hosts import Host, PluginError
from lpkit_conformance.instruments.edits import NoteEdits
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.subject.subject import Subject


def editing_line(
    subject: Subject,
    ops: Sequence[Op],
    max_num_seqs: int,
    mismatch: Mismatch,
    make_host: Callable[[Subject, int], Host],
) -> str:
    """Return ``file:line`` of the author's statement that edited the row that differs.

    For a row that came back unchanged, the last statement that wrote to logits at all, or else the last line of
    ``apply`` that ran.
    """
    notes: list[NoteEdits] = []
    writes = Writes(subject.plugin.cls)

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        if method != "apply":
            yield
            return
        notes.append(NoteEdits(args[0], mismatch.row))
        with notes[-1], writes.around(method, args, lambda: None):
            yield

    with contextlib.suppress(PluginError):
        host = make_host(subject, max_num_seqs)
        with host.driver.watched(watch):
            for seen in host.run(ops):
                if seen.step == mismatch.step and any(item.request == mismatch.request for item in seen.rows):
                    break
    return notes[-1].line or str(writes.ran or "") if notes else ""
