"""LP2, continued: row changes of engines other than vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lpkit_conformance.checks.ladder import LadderCheck, mixed_arrivals
from lpkit_conformance.checks.lazily import Subject, beams
from lpkit_conformance.programs.generate import Arrive, Finish, Preempt, Program, Resume, Step, program
from lpkit_conformance.results import Failed
from lpkit_conformance.settings.hosts import EXPORT

CAUSE = (
    "on vLLM the plugin is right: there a row holds tokens that the plugin allowed. Other engines also show it beams "
    "that fall away, drafts that are taken back, and finished rows filled up with padding"
)


class LP231(LadderCheck):
    """Rows may be copies of other rows, and hold tokens that the plugin forbids.

    With beams an engine copies a row and continues it with another token, even a masked token. Rows have no names and
    change their order at each step. A finished row stays in the batch, filled up with padding. Drafts are shown and
    taken back. lpkit identifies a row by its tokens, and adds the others as requests with output tokens.

    Why: on vLLM a row holds tokens that the plugin allowed, so a rule may look them up in its own tables. In
    transformers, SGLang or mlx-lm the same lookup raises, and ends the generation of every row.

    Fix: handle any token; leave a row unchanged if the rule cannot continue its tokens.
    """

    code, name, hosts = "LP231", "beams-and-drafts", (EXPORT,)
    quick = "first"
    requires = ("LP101", "LP301", "LP201", "LP202", "LP204", "LP210", "LP211")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program(
            "comings and goings",
            mixed_arrivals(5),
            Step(4),
            [Finish("r0"), Preempt("r1"), Arrive("x", 2)],
            Step(3),
            [Resume("r1"), Arrive("y", None, 6), Arrive("x2", twin_of="x")],
            Step(6),
        )
        growing = [*mixed_arrivals(3), Step(3), *mixed_arrivals(12, start=3), Step(3)]
        yield program("the batch grows", growing, max_num_seqs=16)
        later = [Arrive("b", twin_of="a"), Arrive("c", 0), Step(8)]
        yield program("a second call", Arrive("a", 0), Step(16), Finish("a"), Step(2), later)

    def host(self, subject: Subject, max_num_seqs: int) -> beams.BeamsHost:
        return beams.BeamsHost(subject, max_num_seqs)

    def run(self, subject: Subject) -> str | None:
        try:
            return super().run(subject)
        except Failed as failure:
            # Its bookkeeping is right, as the checks that this one requires have shown.
            raise Failed(replace(failure.finding, cause=CAUSE, fix="")) from None
