"""LP2, continued: batches and histories of every size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product

from lpkit_conformance.checks.ladder import LadderCheck, mixed_arrivals
from lpkit_conformance.checks.lazily import Subject, calls, findings, parts, runtime, stand, torch
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive, Finish, Program, Step, program
from lpkit_conformance.results import Failed
from lpkit_conformance.subject import worlds

WRITTEN = 300
"""Output tokens of requests that differ in how often, or how long ago, a token was written."""

PERIOD = (2, 3, 4)
"""Numbers that a byte does not tell from those that are larger by 256."""

MOST_NAMED = 4
"""Tokens of a case for which that is tried."""


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
        # A table that grows with those who use the plugin meets a number far beyond its size.
        strangers = [Arrive(f"s{i}", None) for i in range(70)]
        users = [Arrive(f"r{i}", i) for i in range(2)]
        yield program("70 without the plugin, then two with it", strangers, Step(), users, Step(2), max_num_seqs=72)


class LP214(LadderCheck):
    """Long outputs and long prompts work.

    More than forty output tokens, with departures in between; prompts of a hundred tokens that begin with the same 64,
    as with a chat template. What depends on how often or how long ago a token was written, or on how many different
    tokens were, does not begin again at 128 or 256.

    Why: a window, cache or counter of fixed size fails only late in a request.

    Fix: size buffers by ``max_model_len``, or grow them.
    """

    code, name = "LP214", "long-outputs"
    hazard = "long"
    requires = ("LP201", "LP202", "LP203", "LP204")

    def run(self, subject: Subject) -> str | None:
        note = super().run(subject)
        for number, edits in self._numbered(subject):
            few, half, more = ([edits[size + n] for n in PERIOD] for size in (0, 128, 256))
            begins_again = few == more and few != half and len({*few}) == len(few)
            vanishes = not edits[256] and all(edits[256 + n] for n in (-2, -1, 1, 2))
            if begins_again or vanishes:
                written, like = (256 + PERIOD[0], PERIOD[0]) if begins_again else (256, 0)
                size, dtype = (128, "int8") if edits[127] * edits[128] < 0 else (256, "uint8")
                key, words, line = self._beginning_again(subject, size, dtype)
                raise Failed(
                    f"the edit for {number.format(written)} is the same as for {like}",
                    {"output tokens": str(WRITTEN)},
                    f"another edit than for {like}, as for {size - 1} ({edits[size - 1]:g})",
                    f"{edits[written]:g}",
                    cause=advice.cause(key, self.code).format(**words),
                    fix=advice.fix(key, self.code).format(**words),
                    location=line,
                )
        return note

    @staticmethod
    def _beginning_again(subject: Subject, size: int, dtype: str) -> tuple[str, dict[str, object], str]:
        """Return the key of the advice, its words and ``file:line``, by what the author's code shows of this size."""
        cls = subject.plugin.cls
        names = (dtype, "char" if dtype == "int8" else "byte")
        typed = next(filter(None, (findings.reading_line(cls, name, but=None)[0] for name in names)), "")
        text, wraps = findings.wrapping(cls, size)
        words = {"size": size, "dtype": dtype, "text": text}
        if bool(typed) == bool(wraps):
            return "again", words, ""
        return "byte" if typed else "wraps", words, typed or wraps

    @staticmethod
    def _numbered(subject: Subject) -> Iterator[tuple[str, dict[int, float]]]:
        """Yield what numbers say of outputs of one length, and what is added to a token's logit, by the number."""
        there, size = subject.within(worlds.LONG), subject.setup.vocab_size
        named = there.model.named(there.setup.case)[:MOST_NAMED]
        filler, *others = (token for token in [*range(size // 2 + 1, size), *range(size // 2)] if token not in named)
        numbers = [size + n for size in (0, 128, 256) for n in (-2, -1, 0, 1, *PERIOD) if size + n > 0]
        if (there.most_outputs(0) or WRITTEN) < WRITTEN or len(others) < max(numbers):
            return
        for token in dict.fromkeys([size // 2, *named]):
            different = [token, filler, *others]
            outputs = {
                "a token that was written {} times": [[filler] * (WRITTEN - n) + [token] * n for n in numbers],
                "a token that was written {} tokens ago": [
                    [filler] * (WRITTEN - n) + [token] + [filler] * (n - 1) for n in numbers
                ],
                "{} different tokens": [[different[min(i, n - 1)] for i in reversed(range(WRITTEN))] for n in numbers],
            }
            try:
                added = _added(there, [*chain(*outputs.values())])[:, [size // 2, *named]].T.tolist()
            except calls.PluginError:  # it may forbid a token that repeats
                continue
            for of_token, (start, number) in product(added, enumerate(outputs)):
                yield number, dict(zip(numbers, of_token[start * len(numbers) :], strict=False))

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("forty tokens", mixed_arrivals(3), Step(12), Finish("r0"), Step(14), Arrive("x", 3), Step(16))
        long = [Arrive("a", 0, 130), Arrive("b", 1, 140), Arrive("c", None, 90), Arrive("d", 2, 3)]
        yield program("long prompts", long, Step(3))
        # 64 tokens fill a buffer of the usual size: alone it needs no padding, next to a longer request it does.
        yield program("just as long as a buffer", [Arrive("a", 0, 62), Arrive("b", 1, 100)], Step(5))


def _added(subject: Subject, outputs: list[list[int]]) -> torch.Tensor:
    """Return what is added to equal logits ``[len(outputs), vocab]`` of requests of the case with these outputs."""
    driver = parts.drive(subject, len(outputs))
    asked = [
        runtime.Request(f"a{n}", subject.params(0), subject.model.prompt("a", 4, 0), output_token_ids=ids)
        for n, ids in enumerate(outputs)
    ]
    driver.begin(entering=asked)
    before, after = stand.stepped(subject, driver, asked, subject.model.rows([("a", WRITTEN)] * len(outputs)))
    return (after - before).nan_to_num(0.0)
