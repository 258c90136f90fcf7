"""The line at fault: found by running a small failing program once more, with the author's lines noted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lpkit_conformance.hosts import Host, PluginError
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.instruments.edits import NoteEdits
from lpkit_conformance.oracle.compare import Mismatch
from lpkit_conformance.programs.generate import Op


def line_of_edit(
    subject: PluginUnderTest,
    ops: Sequence[Op],
    max_num_seqs: int,
    mismatch: Mismatch,
    make_host: Callable[[PluginUnderTest, int], Host],
) -> str:
    """``file:line`` of the author's statement that edited the row that differs.

    A row that came back as it went has no such line; then it is the last one that wrote to logits at all.
    """
    notes: list[NoteEdits] = []
    edited = ""

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        if method != "apply":
            yield
            return
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
                        break
    wrote = [line for note in notes for line in (note.computed, note.wrote) if line]
    return edited or (wrote[-1] if wrote else "")
