"""What a failing program still holds once it is shrunk, and what to change where that goes wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap
from lpkit_conformance.vllm_api.runners import V1, V2

Hazard = Literal[
    "drafts",
    "swap",
    "twins",
    "resume",
    "prefill",
    "idle",
    "empty",
    "full",
    "many",
    "long",
    "replace",
    "move",
    "remove",
    "short",
    "company",
    "alone",
]

FIXES: Final[Mapping[Hazard, Mapping[str, str]]] = {
    "drafts": {
        V2: "find each row's request in `ctx.expanded_idx_mapping`, and give the row the history that it has: "
        "`ctx.pos + 1` tokens, committed ones, then the inputs of the request's rows above it. The host's bounds "
        "(`seq_lens_upper_bound_np`) count rejected drafts, too",
    },
    "swap": {
        V1: "for a SWAP take both states out, then store each under the other row; if a row had none, delete the other "
        "row's. Carry out `moved` in the given order",
    },
    "twins": {
        V1: "key state by row, never by `id(params)` or the prompt; store nothing in the parameters",
        V2: "key state by slot, never by `id(params)` or the prompt; store nothing in the parameters",
    },
    "resume": {
        V1: "derive state from the token lists that come with the Add: a request that resumes brings its output tokens",
        V2: "derive state from the engine's token buffer: a request that resumes has output tokens in `add_request`. "
        "`prefill_len` counts these, `prompt_len` does not",
    },
    "prefill": {
        V1: "make state a function of the output tokens, and do not count calls: a partial prefill is a row without a "
        "new token",
        V2: "make state a function of the output tokens, and do not count calls: in a partial prefill `pos + 1` is "
        "below `prefill_len`",
    },
    "idle": {
        V1: "on `update_state(None)` do nothing that depends on the number of calls; not every step calls `apply`",
        V2: "do nothing that depends on the number of calls of `apply_staged_writes`; not every step calls `apply`",
    },
    "empty": {
        V1: "test `batch_update is None`, not its truth value or its `batch_size`",
        V2: "expect steps without any request: do not take the first row or slot for granted",
    },
    "full": {
        V1: "size buffers by `vllm_config.scheduler_config.max_num_seqs`",
        V2: "size buffers by `req_states.max_num_reqs`",
    },
    "many": {
        V1: "size by `vllm_config.scheduler_config.max_num_seqs`; never assume how many rows there are",
        V2: "size by `req_states.max_num_reqs`; never assume how many rows there are",
    },
    "long": dict.fromkeys(
        (V1, V2),
        "make a row's result independent of how long other rows are: leave padding out of counts and reductions, "
        "and let no other request's tokens push a request's own out of a cache or a window",
    ),
    "replace": {
        V1: 'treat every entry of `added` as "forget this row first", even when the new request does not use the '
        "plugin; `removed` does not list a row that is taken in the same step",
        V2: "overwrite the slot's whole state in `add_request`, even when you return False: no call announces that the "
        "slot was freed",
    },
    "move": {
        V1: "for a one-way move pop the source's state and store it at the destination; if the source had none, delete "
        "the destination's",
        V2: "look a row's slot up in `ctx.expanded_idx_mapping` in every call: rows come in a new order",
    },
    "remove": {
        V1: "drop the state of every row in `removed`",
        V2: "read only the slots of this call's rows: no call announces that a request left",
    },
    "short": dict.fromkeys(
        (V1, V2),
        "expect short prompts: before the first output there may be one token and no more",
    ),
    "company": {
        V1: "compute per row, and look a row's arguments up by its own row",
        V2: "compute per row, and look a row's arguments up by its own slot",
    },
    "alone": dict.fromkeys(
        (V1, V2),
        "make the result a function of the request's arguments and its tokens so far; do not count calls or steps",
    ),
}
"""What to change where this is all that sets a request's treatment apart; from the special to the general."""

READ_FIXES: Final[Mapping[str, str]] = {
    V1: "compute each row from its own arguments and token lists, in this step's order of rows; change nothing in "
    "place that several requests share",
    V2: "find each row's slot in `ctx.expanded_idx_mapping`; read tokens up to `ctx.pos` and none behind it, where "
    "those of an earlier request stand; change nothing in place that several requests share",
}
"""What to change where a new instance goes wrong just the same."""

ORDER_FIX: Final = (
    "carry out an update in this order: `removed`, `added`, then `moved`, entry by entry as given. The swap goes right "
    "in an update of its own, and wrong in one with other changes"
)
"""What to change where only a swap among other changes goes wrong."""

CHANGES: Final[frozenset[Hazard]] = frozenset({"replace", "move", "remove", "swap"})
"""After which a row or slot is another request's."""

WHEN: Final[Mapping[Hazard, str]] = {
    "drafts": "requests have draft tokens, each with a row of its own",
    "swap": "two rows are swapped, of which one may belong to a request that does not use the plugin",
    "twins": "two requests share one `SamplingParams` object",
    "resume": "a preempted request comes back, with output tokens",
    "prefill": "a prompt is processed in chunks",
    "idle": "a step has no tokens",
    "empty": "the batch is empty",
    "full": "the batch is full: size buffers by the configuration",
    "many": "the batch is large: size buffers by the configuration",
    "long": "prompts or outputs are long: size buffers by `max_model_len`, or grow them",
    "replace": "a request leaves and another one takes its row or slot",
    "move": "a request leaves the middle of the batch",
    "remove": "a request leaves",
    "short": "a prompt is short: there may be one token, and no output yet",
    "company": "requests with other arguments, or without, are in the batch",
    "alone": "a request is alone",
}
"""In which situation a line must not raise."""

SHORT = 2
"""So few tokens are less than a rule may want to see. A program has them only if its failure needs them."""

MANY, LONG = 8, 40
"""More requests at a time, and more tokens, than the programs for other hazards have."""


def fix_for(
    ops: Sequence[Op],
    interface: str,
    max_num_seqs: int,
    meant: Hazard | None,
    raised: bool,
    own: Mapping[Hazard, str] = MappingProxyType({}),
) -> str:
    """What to change, by what is left of a program: what it was ``meant`` for, else the most special hazard.

    Empty if several changes of the batch are left, any of which may be at fault.

    Args:
        raised: whether the plugin raised, so that there is a line to correct.
        own: fixes in other words.
    """
    found = hazards(ops, interface, max_num_seqs)
    hazard: Hazard = next(name for name in FIXES if name in found)
    if meant is not None and meant in found:
        hazard = meant
    elif len(found & {"swap", "resume", "replace", "move", "remove"}) > 2:
        return ""
    return f"make the line work when {WHEN[hazard]}" if raised else own.get(hazard, FIXES[hazard].get(interface, ""))


def may_be_read(found: set[Hazard]) -> bool:
    """Whether a new instance going wrong too tells anything: it has not met a change that the program needs.

    What the others are about, it meets as well.
    """
    return bool(found & CHANGES) and found.isdisjoint({"drafts", "resume", "twins", "prefill"})


def with_swaps_apart(ops: Sequence[Op]) -> list[Op] | None:
    """The operations with a step before each swap; None if each swap has an update to itself."""
    found: list[Op] = []
    pending = False
    for op in ops:
        if isinstance(op, Swap):
            found += [Step()] * pending
            pending = False
        else:
            pending = not isinstance(op, Step | Idle | Speculate)
        found.append(op)
    return found if len(found) > len(ops) else None


def hazards(ops: Sequence[Op], interface: str, max_num_seqs: int) -> set[Hazard]:
    """What the operations hold; always ``alone`` or ``company``."""
    found: set[Hazard] = {"company" if sum(isinstance(op, Arrive) for op in ops) > 1 else "alone"}
    if any(isinstance(op, Speculate) for op in ops):
        found.add("drafts")
    if any(isinstance(op, Swap) for op in ops):
        found.add("swap")
    if any(isinstance(op, Idle) for op in ops):
        found.add("idle")
    if any(isinstance(op, Resume) for op in ops):
        found.add("resume")
    arrivals = [op for op in ops if isinstance(op, Arrive)]
    if any(op.twin_of for op in arrivals):
        found.add("twins")
    if any(op.chunks for op in arrivals):
        found.add("prefill")
    if any(op.prompt_len <= SHORT for op in arrivals):
        found.add("short")
    steps = sum(op.count for op in ops if isinstance(op, Step))
    if steps > LONG or any(op.prompt_len > LONG for op in arrivals):
        found.add("long")
    found.update(_changes(ops, interface, max_num_seqs))
    return found


def _changes(ops: Sequence[Op], interface: str, max_num_seqs: int) -> Iterator[Hazard]:
    """What becomes of rows and slots."""
    rows: list[str] = []
    left: list[str] = []
    entered: list[str] = []
    anyone_left = False
    for op in ops:
        if isinstance(op, Arrive | Resume):
            entered.append(op.request)
        elif isinstance(op, Finish | Preempt):
            if op.request in entered:
                entered.remove(op.request)
            else:
                left.append(op.request)
        elif isinstance(op, Step | Idle | Speculate):
            gone = sorted(rows.index(name) for name in left if name in rows)
            if entered and (gone or (interface == V2 and anyone_left)):
                yield "replace"
            anyone_left |= bool(gone)
            rows, moved = _settled(rows, gone, entered)
            if len(gone) > len(entered):
                if moved or interface == V2:
                    yield "move"
                if not moved or interface == V2 or len(gone) - len(entered) > 1:
                    yield "remove"
            if not rows:
                yield "empty"
            if len(rows) == max_num_seqs:
                yield "full"
            if len(rows) > MANY:
                yield "many"
            left, entered = [], []


def _settled(rows: list[str], gone: list[int], entered: list[str]) -> tuple[list[str], bool]:
    """The rows after an update, and whether a request moved into the gap of another: V1's order."""
    after: list[str | None] = [None if row in gone else name for row, name in enumerate(rows)]
    coming = list(entered)
    for row in gone:
        if coming:
            after[row] = coming.pop(0)
    after += coming
    moved = False
    while None in after:
        last = after.pop()
        if last is not None:
            after[after.index(None)] = last
            moved = True
    return [name for name in after if name is not None], moved
