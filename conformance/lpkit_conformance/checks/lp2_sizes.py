"""LP2, continued: batches and histories of every size."""

from __future__ import annotations

from collections.abc import Iterator

from lpkit_conformance.checks.ladder import LadderCheck, mixed_arrivals
from lpkit_conformance.checks.lazily import Subject
from lpkit_conformance.programs.generate import Arrive, Finish, Program, Step, program


class LP207(LadderCheck):
    """A full batch works.

    Exactly ``max_num_seqs`` requests run; then new requests replace all of them.

    Why: a buffer that is one row short fails only in production, under load.

    Fix: size buffers by ``vllm_config.scheduler_config.max_num_seqs`` (V1) or ``req_states.max_num_reqs`` (V2).
    """

    code, name = "LP207", "full"
    hazard = "full"
    requires = ("LP201", "LP202", "LP203")

    def programs(self, subject: Subject) -> Iterator[Program]:
        n = subject.setup.max_num_seqs
        yield program(
            "full, then replaced",
            mixed_arrivals(n),
            Step(2),
            [Finish(f"r{i}") for i in range(n)],
            mixed_arrivals(n, "s", 1),
            Step(2),
            max_num_seqs=n,
        )


class LP208(LadderCheck):
    """Large batches work.

    Batches grow past 64, past 256 and past 512 requests and shrink again.

    Why: fixed-size buffers, row numbers stored in a byte, and blocks of 64 rows look right in small tests.

    Fix: size by the configuration; never assume how many rows there are.
    """

    code, name = "LP208", "growth"
    hazard = "many"
    requires = ("LP201", "LP202", "LP203", "LP204", "LP207", "LP210")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program(
            "70, then 264, then 520, then few",
            mixed_arrivals(70),
            Step(),
            mixed_arrivals(194, start=70),
            Step(),
            mixed_arrivals(256, start=264),
            Step(),
            [Finish(f"r{i}") for i in range(0, 520, 2)],
            Step(),
            [Finish(f"r{i}") for i in range(1, 510, 2)],
            Step(),
            max_num_seqs=520,
        )


class LP214(LadderCheck):
    """Long outputs and long prompts work.

    More than forty output tokens, with departures in between; prompts of a hundred tokens that begin with the same 64,
    as with a chat template.

    Why: a window, cache or counter of fixed size fails only late in a request.

    Fix: size buffers by ``max_model_len``, or grow them.
    """

    code, name = "LP214", "long-outputs"
    hazard = "long"
    requires = ("LP201", "LP202", "LP203", "LP204")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("forty tokens", mixed_arrivals(3), Step(12), Finish("r0"), Step(14), Arrive("x", 3), Step(16))
        long = [Arrive("a", 0, 130), Arrive("b", 1, 140), Arrive("c", None, 90), Arrive("d", 2, 3)]
        yield program("long prompts", long, Step(3))
        # 64 tokens fill a buffer of the usual size: alone it needs no padding, next to a longer request it does.
        yield program("just as long as a buffer", [Arrive("a", 0, 62), Arrive("b", 1, 100)], Step(5))
