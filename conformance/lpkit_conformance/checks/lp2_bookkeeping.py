"""LP2: state follows its request through every change of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lpkit_conformance.checks.ladder import LadderCheck, mixed_arrivals
from lpkit_conformance.checks.lazily import Subject
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Preempt, Program, Resume, Step, Swap, program
from lpkit_conformance.results import Skipped
from lpkit_conformance.vllm_api.runners import V1
from lpkit_conformance.vllm_api.tokenizer import leaves


class LP201(LadderCheck):
    """Requests do not influence each other.

    A request gets the same logits in any batch as it gets alone: next to requests with other arguments, with arguments
    that differ in one value or in the order of a list, with one of vLLM's fields that differs, and with the arguments
    of the other cases.

    Why: with a reduction over the whole batch, or arguments looked up by the wrong row, one user's request changes
    another user's output. So does a cache whose key leaves an argument out.

    Fix: compute per row; look a row's arguments up by its own row (V1) or slot (V2).
    """

    code, name, shared = "LP201", "neighbours", False
    quick = "each"
    hazard = "company"
    # What is shared or random differs from a request alone in any batch: these say it plainly.
    requires = ("LP101", "LP301", "LP302", "LP502", "LP507", "LP601")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("six together", mixed_arrivals(6), Step(4))
        yield program("one after another", *[[arrival, Step()] for arrival in mixed_arrivals(5)], Step(2))
        yield program("all of them", [Arrive(f"r{i}", i) for i in range(6)], Step(3))
        # What holds for a whole batch is easily kept once for all of it.
        yield program(
            "equal arguments, then a stranger",
            [Arrive("a", 0), Arrive("b", 0), Arrive("c", 0), Arrive("d", 0), Step()],
            [Arrive("x", None), Arrive("y", 1), Step(), Finish("y"), Step(), Finish("x"), Step()],
        )
        # Those with the case's arguments differ in a field of vLLM's: everything else is equal.
        arguments = [case.fields.get("extra_args") for case in subject.cases]
        alike = ["n0" if each == arguments[0] else "" for each in arguments]
        arrivals = [
            Arrive(f"n{i}", variant, character=alike[variant]) for i, variant in enumerate((0, *subject.neighbours))
        ]
        yield program("differ in one thing", arrivals, Step(3), max_num_seqs=max(len(arrivals), 8))


class LP202(LadderCheck):
    """An Add at an occupied row replaces the request there.

    When a request finishes and another arrives in the same step, the new request takes the row. V1's update then
    lists it in ``added`` only, not in ``removed``; V2 reuses the slot without announcing it.

    Why: leftover state of the old request is applied to the new request. This is the most common defect.

    Fix: treat every entry of ``added`` as "forget this row first", even when the new request does not use the
    plugin. On V2 overwrite the slot's whole state in ``add_request``, even when you return False.
    """

    code, name = "LP202", "replace-on-add"
    quick = "first"
    hazard = "replace"

    def programs(self, subject: Subject) -> Iterator[Program]:
        for old, new in ((0, None), (0, 1), (None, 0)):
            yield program(
                f"arguments {old} replaced by {new}",
                [Arrive("a", old), Arrive("b", 2), Step(2), Finish("a"), Arrive("c", new), Step(3)],
            )
        yield program(
            "replaced at every step",
            mixed_arrivals(3),
            Step(),
            *[[Finish(f"r{i}"), Arrive(f"n{i}", (i + 1) % 4 if i % 2 else None), Step()] for i in range(3)],
            Step(),
        )
        yield program(
            "users in all rows make room for others",
            [Arrive(f"r{i}", i) for i in range(4)],
            Step(),
            *[[Finish(f"r{i}"), Arrive(f"n{i}", None), Step()] for i in range(4)],
        )
        # What a request does not give may show only where a default, or its list, ends.
        guests = [*_of_other_sizes(subject), *subject.others[:1]] or [1]
        yield program(
            "long after another with more or fewer arguments",
            [Arrive("other", None), Arrive("a", 0), Step()],
            *[
                [Finish(f"b{n - 1}" if n else "a"), Arrive(f"g{n}", guest), Step(16)]
                + [Finish(f"g{n}"), Arrive(f"b{n}", 0), Step(16)]
                for n, guest in enumerate(guests)
            ],
        )
        visitors = [None, *subject.variants]
        yield program(
            "each after every other in one row",
            [Arrive("other", 1), Arrive("t", 0)],
            *[
                [Finish(f"t{n - 1}" if n else "t"), Arrive(f"t{n}", visitor, character=f"v{visitor}"), Step()]
                for n, visitor in enumerate(tour(visitors))
            ],
        )


def _of_other_sizes(subject: Subject) -> list[int]:
    """Return relatives with fewer values in their arguments than the case has; if it has none, one with more."""
    sizes = [len([*leaves(case.fields.get("extra_args") or {})]) for case in subject.cases]
    derived = range(len(sizes) - len(subject.others))
    less, more = ([n for n in derived if sign * sizes[n] < sign * sizes[0]] for sign in (1, -1))
    return less[:3] or more[:1]


def tour(visitors: Sequence[int | None]) -> Iterator[int | None]:
    """Every visitor directly after every other at least once."""
    for n, first in enumerate(visitors):
        for second in visitors[n + 1 :]:
            yield first
            yield second
        yield first


class LP203(LadderCheck):
    """A removed request leaves no state behind.

    When the request in the last row leaves, the batch shrinks and no other request moves to that row.

    Why: state kept for a row that no longer exists is applied to the next request in that row, or indexes past the
    end of the logits.

    Fix: drop the state of every row in ``removed``. On V2, which does not announce that a request left, read only
    the slots of this call's rows.
    """

    code, name = "LP203", "remove"
    prevented = "they call `process`, `edit` or a callable for requests in the batch only."
    hazard = "remove"
    requires = ("LP201", "LP202")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("the last row leaves", mixed_arrivals(4), Step(), Finish("r3"), Step(2))
        yield program(
            "and another comes without the plugin",
            [Arrive("a", 0), Arrive("b", 1), Step(), Finish("b"), Step(), Arrive("c", None), Step(2)],
        )
        yield program(
            "two leave at once",
            mixed_arrivals(5),
            [Step(), Finish("r3"), Finish("r4"), Step(), Arrive("x", None), Step()],
        )


class LP204(LadderCheck):
    """A one-way move takes the state along and clears the source.

    When a request leaves the middle of the batch, V1 moves the last request into the gap: ``(source,
    destination, UNIDIRECTIONAL)``. The destination's old state is overwritten, the source becomes empty.

    Why: a state left at the source reappears under the next request added there. If the state is lost in the move,
    the plugin stops working in the middle of the output.

    Fix: pop the source's state; store it at the destination; if the source had none, delete the destination's. On V2
    rows come in a new order in every step: look a row's slot up in ``ctx.expanded_idx_mapping``.
    """

    code, name = "LP204", "one-way-move"
    prevented = "they follow V1's moves, and a request keeps its slot."
    hazard = "move"
    requires = ("LP201", "LP202")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("the last moves down", mixed_arrivals(4), Step(), Finish("r0"), Step(3))
        yield program(
            "a plain one moves over a user's row",
            [Arrive("a", 0), Arrive("b", 1), Arrive("c", None), Step(), Finish("a"), Step(2)],
        )
        yield program(
            "a newcomer takes the row that was left",
            [Arrive("a", None), Arrive("b", 1), Arrive("c", 2), Step(), Finish("a"), Step()],
            [Arrive("d", None), Step(2)],
        )
        yield program(
            "several moves in one update",
            mixed_arrivals(8),
            Step(),
            [Finish("r0"), Finish("r2"), Finish("r3")],
            Step(2),
            [Arrive("x", None), Arrive("y", 3), Arrive("z", None)],
            Step(2),
        )


class LP205(LadderCheck):
    """A swap exchanges the states of both rows.

    ``(a, b, SWAP)``: either row may belong to a request that does not use the plugin.

    Why: attention backends reorder the batch on the fly; a half-done swap gives two requests each other's
    arguments (vLLM #51890).

    Fix: take both states out, then store each under the other row; if a row had none, delete the other row's.
    """

    code, name, hosts = "LP205", "swap", (V1,)
    quick = "first"
    prevented = "they follow V1's moves, and a request keeps its slot."
    hazard = "swap"

    def programs(self, subject: Subject) -> Iterator[Program]:
        for first, second in ((0, 1), (0, None), (None, 1), (3, 0)):  # the last may have another flag
            yield program(
                f"arguments {first} and {second}",
                [Arrive("a", first), Step(2), Arrive("b", second), Step(), Swap(0, 1), Step(2), Swap(1, 0), Step()],
            )


class LP206(LadderCheck):
    """Moves are applied in order.

    An update may hold one-way moves followed by a chain of swaps that share rows.

    Why: moves applied all at once, or from a snapshot, give wrong rows after the first shared row.

    Fix: loop over ``moved`` in the given order, each move on the result of the previous one.
    """

    code, name, hosts = "LP206", "swap-chain", (V1,)
    prevented = "they follow V1's moves, and a request keeps its slot."
    hazard = "swap"
    requires = ("LP201", "LP202", "LP205")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("rotation", mixed_arrivals(4), Step(), [Swap(0, 1), Swap(1, 2), Swap(2, 3)], Step(2))
        yield program("there and back", mixed_arrivals(3), Step(), [Swap(0, 2), Swap(2, 1), Swap(0, 2)], Step(2))
        yield program(
            "additions, condense moves and swaps in one update",
            mixed_arrivals(5),
            Step(),
            [Finish("r0"), Finish("r1"), Arrive("x", 3), Swap(0, 3), Swap(3, 1)],
            Step(2),
        )
        yield program(
            "a newcomer is swapped at once", mixed_arrivals(2), Step(), Arrive("x", None), Swap(2, 0), Step(2)
        )


class LP209(LadderCheck):
    """The batch may become empty.

    All requests leave (``batch_size`` 0), then a new request arrives.

    Why: an update for an empty batch is easily mistaken for no update.

    Fix: test ``batch_update is None``, not its truth value or its ``batch_size``.
    """

    code, name = "LP209", "empty-then-one"
    prevented = "they wait for the next request, and call `process`, `edit` or a callable with at least one row."
    hazard = "empty"
    requires = ("LP201", "LP202", "LP203")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program(
            "empty", mixed_arrivals(3), Step(), [Finish(f"r{i}") for i in range(3)], Idle(), Arrive("x", None), Step(2)
        )
        yield program("empty, twice", Arrive("a", 0), Step(), Finish("a"), Idle(), Idle(), Arrive("b", 1), Step(2))


class LP210(LadderCheck):
    """Two requests may share one ``SamplingParams`` object.

    With ``n > 1`` and in offline batches several requests carry the same object and prompt.

    Why: state keyed by the object, or stored in it, is shared by independent requests.

    Fix: key state by row (V1) or slot (V2), never by ``id(params)``; store nothing in the parameters.
    """

    code, name = "LP210", "twins"
    hazard = "twins"
    requires = ("LP201", "LP504", "LP105")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program(
            "twins of different age",
            [Arrive("a", 0), Step(2), Arrive("b", twin_of="a"), Step(3), Finish("a"), Step(2)],
        )
        yield program(
            "one twin after the other",
            [Arrive("a", 0), Arrive("o", 1), Step(3), Finish("a"), Arrive("b", twin_of="a"), Step(2)],
            [Finish("b"), Step(), Arrive("c", twin_of="a"), Step(2)],
        )


class LP211(LadderCheck):
    """A preempted request resumes where it left off.

    It leaves the batch and returns later, in another row or slot, with its output tokens; under async scheduling
    they are in a new list object. This can happen at any output length.

    Why: state that starts from zero at the Add, or is tied to the old list, loses what was generated.

    Fix: derive state from the token lists that come with the Add (V1) or from the engine's token buffer (V2).
    """

    code, name = "LP211", "resume"
    hazard, quick = "resume", "first"
    requires = ("LP201", "LP202", "LP212", "LP214", "LP105")

    def programs(self, subject: Subject) -> Iterator[Program]:
        if "resumed" in subject.without:
            raise Skipped("the plugin raises for resumed requests: see LP104")
        for new_list in (False, True):
            yield program(
                "resumed at another row" + (" with a new list" if new_list else ""),
                [Arrive("a", 3 if new_list else 0), Arrive("b", 1), Step(3), Preempt("a"), Step()],
                [Arrive("c", 2), Step(), Resume("a", new_list), Step(4)],
            )
        yield program(
            "preempted at every length",
            Arrive("other", 1),
            Arrive("a", 0),
            *[[Step(), Preempt("a"), Step(), Resume("a", n % 2 == 0)] for n in range(8)],
            Step(2),
        )


class LP212(LadderCheck):
    """Partial prefills do not advance state.

    With chunked prefill ``apply`` gets a row per chunk, and the engine discards the token sampled from it. V1 does not
    mark such a row; on V2 its ``pos + 1`` is below ``prefill_len``.

    Why: state advanced per call of ``apply`` is ahead before the first token is generated.

    Fix: make state a function of the output tokens; do not count calls.
    """

    code, name = "LP212", "partial-prefill"
    hazard, quick = "prefill", "first"
    requires = ("LP201", "LP213", "LP303")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("two chunks", [Arrive("a", 0, 9, chunks=2), Arrive("b", 1), Step(6)])
        yield program(
            "among others",
            mixed_arrivals(3),
            Step(),
            Arrive("x", 0, 9, chunks=3),
            Arrive("y", None, 9, chunks=1),
            Step(6),
        )


class LP213(LadderCheck):
    """Steps without changes or without tokens do not advance state.

    ``update_state(None)`` (V1) and ``apply_staged_writes`` without additions (V2) are called often; some steps
    do not call ``apply``.

    Why: state advanced per ``update_state`` drifts from the tokens.

    Fix: on None, do nothing that depends on the number of calls.
    """

    code, name = "LP213", "idle-steps"
    hazard = "idle"

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("idle between steps", mixed_arrivals(3), Step(), Idle(), Idle(), Step(2), Idle(), Step(2))
        yield program("long stretch without changes", mixed_arrivals(4), Step(10))
        yield program(
            "arrivals and departures on steps without tokens",
            mixed_arrivals(3),
            Step(),
            [Arrive("x", 1), Idle(), Arrive("y", 2), Idle(), Finish("r0"), Idle(), Step(2)],
        )
