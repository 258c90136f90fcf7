"""LP2, continued: batches and histories of every size."""

from __future__ import annotations

from collections.abc import Iterator

from lpkit_conformance.checks.ladder import LadderCheck, mixed_arrivals
from lpkit_conformance.checks.lazily import Subject, calls, findings, parts, runtime, stand
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive, Finish, Program, Step, program
from lpkit_conformance.results import Failed
from lpkit_conformance.subject import worlds

WRITTEN = 300
"""Output tokens of requests that differ in how often one of two tokens is among them."""


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
    as with a chat template. What depends on how often a token was written does not begin again at 128 or 256 times.

    Why: a window, cache or counter of fixed size fails only late in a request.

    Fix: size buffers by ``max_model_len``, or grow them.
    """

    code, name = "LP214", "long-outputs"
    hazard = "long"
    requires = ("LP201", "LP202", "LP203", "LP204")

    def run(self, subject: Subject) -> str | None:
        note = super().run(subject)
        edits = self._repeated(subject)
        for size, dtype in ((128, "int8"), (256, "uint8")):
            below, here, above = ([edits.get(size + n, 0.0) for n in ns] for ns in ((-2, -1), (0,), (1, 2)))
            vanishes = size == 256 and not any(here) and all((*below, *above))
            if vanishes or (min(below) > 0 > max(*here, *above)) or (max(below) < 0 < min(*here, *above)):
                cls = subject.plugin.cls
                raise Failed(
                    f"the edit of a token that was written {size} times is not like that for {size - 1} times",
                    {"output tokens": str(WRITTEN)},
                    f"{below[-1]:g}, or more or less by the share of one more",
                    f"{here[0]:g}",
                    cause=advice.cause("byte", self.code).format(size=size, dtype=dtype),
                    fix=advice.fix("byte", self.code),
                    location=findings.reading_line(cls, dtype, but=None)[0],
                )
        return note

    @staticmethod
    def _repeated(subject: Subject) -> dict[int, float]:
        """Return what is added to the logit of a token, by how often the output has it, for outputs of one length."""
        counts = [size + n for size in (128, 256) for n in range(-2, 3)]
        there, token = subject.within(worlds.LONG), subject.setup.vocab_size // 2
        if (there.most_outputs(0) or WRITTEN) < WRITTEN:
            return {}
        try:
            driver = parts.drive(there, len(counts))
            asked = [
                runtime.Request(f"a{n}", there.params(0), there.model.prompt("a", 4, 0), output_token_ids=outputs)
                for n, outputs in ((n, [token + 1] * (WRITTEN - n) + [token] * n) for n in counts)
            ]
            driver.begin(entering=asked)
            before, after = stand.stepped(there, driver, asked, there.model.rows([("a", WRITTEN)] * len(counts)))
        except calls.PluginError:  # it may forbid a token that repeats
            return {}
        return dict(zip(counts, (after - before)[:, token].nan_to_num(0.0).tolist(), strict=True))

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("forty tokens", mixed_arrivals(3), Step(12), Finish("r0"), Step(14), Arrive("x", 3), Step(16))
        long = [Arrive("a", 0, 130), Arrive("b", 1, 140), Arrive("c", None, 90), Arrive("d", 2, 3)]
        yield program("long prompts", long, Step(3))
        # 64 tokens fill a buffer of the usual size: alone it needs no padding, next to a longer request it does.
        yield program("just as long as a buffer", [Arrive("a", 0, 62), Arrive("b", 1, 100)], Step(5))
