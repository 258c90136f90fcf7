"""LP2, continued: the same requests under unusual engine configurations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from lpkit_conformance.checks.base import STATE, Check
from lpkit_conformance.checks.ladder import differing, parting_of
from lpkit_conformance.checks.lazily import (
    Subject,
    by_slot,
    calls,
    compare,
    engine_data,
    exact_ids,
    findings,
    parts,
    recorded_steps,
    requests,
    runtime,
    stand,
    torch,
)
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.results import IN_PYTHON, Failed, Finding
from lpkit_conformance.settings.hosts import RUNNER_HOSTS
from lpkit_conformance.subject.worlds import BEYOND, RECORDED, USUAL, WORLDS, World


class LP221(Check):
    """The plugin works under every supported engine configuration.

    Each configuration gets a short run: a vocabulary that is not a multiple of 32, more than 1,024 and 20,000 output
    tokens, of which the first 300 differ and never come again and the last 1,500 are the same one, asynchronous
    scheduling with a list of end tokens, speculative decoding (a constructor may refuse it with ``ValueError``), and
    the second of two ranks, which must make the edits of the first. In a vocabulary beyond 65,536 tokens, the plugin
    edits the same token's logit as in a small one. The token is named by an argument, is in the prompt, or is the last
    output. The engine's token lists stay unchanged at any length. A step that lpkit can record, also one of a document,
    is repeated without the plugin's Python, as on a GPU, with torch's operations in place of the kernels, while
    requests come and go and columns move. The result says why a step cannot be recorded.

    Why: buffers of 1,024 tokens, masks of whole words of 32 bits, and ``int(eos_token_id)`` work with most models, and
    stop the engine with the next. Half precision cannot hold ids from 2,049 on. A rank that edits nothing samples
    other tokens than its peers.

    Fix: take sizes from the configuration and the logits, and compare ids with the vocabulary's size before you index
    with them.
    """

    code, name, hosts, method = "LP221", "other-engines", RUNNER_HOSTS, STATE
    requires = ("LP101", "LP301", "LP201", "LP207", "LP214", "LP105", "LP303")

    def run(self, subject: Subject) -> str | None:
        worlds = [world for world in WORLDS if world.names_ids or not subject.accompanied]
        refused = [world.name for world in worlds if not works(subject, world)]
        notes = [f"the constructor refuses {', '.join(refused)}" if refused else f"{len(worlds)} engines"]
        why = by_slot.why_not_recorded(getattr(parts.drive(subject), "processor", None))
        if why == "" and not subject.accompanied:
            works(subject, RECORDED)
        elif why:
            notes.append(f"{IN_PYTHON}{why}")
        return "; ".join(notes)


class LP222(Check):
    """Prompt ids may lie outside the vocabulary.

    Prompts may hold ids that the logits have no column for: of tokens that were added to the tokenizer, or of images.

    Why: ``logits[row, prompt_ids]`` and a table of ``vocab_size`` counts raise, or read another row's memory on a GPU:
    one prompt stops the engine for everyone. Multimodal models send such ids for images.

    Fix: drop prompt ids of ``vocab_size`` and above before you index with them.
    """

    code, name = "LP222", "prompt-ids-beyond"
    requires = ("LP101", "LP301", "LP201", "LP207", "LP214")

    def run(self, subject: Subject) -> str | None:
        if not subject.accompanied:
            works(subject, BEYOND)
        return None


def works(subject: Subject, world: World) -> bool:
    """Return False if the constructor refuses a configuration that it may refuse.

    Raises:
        Failed: if it does not work there.
    """
    there = subject.within(world)
    try:
        with subject.as_imported():  # a cache may hold tables of another engine: a process has one
            if world.names_ids:
                exact_ids.compare_ids(subject, there)
            else:
                _compare(there, there if world.peer == USUAL.peer else subject)
    except calls.PluginError as error:
        if world.may_refuse and error.method == "__init__" and isinstance(error.__cause__, ValueError):
            return False
        finding = findings.raised(subject.plugin.cls, error)
        finding = _of_prompt_ids(finding, subject.setup.vocab_size) if world.beyond else finding
        summary = f"in an engine with {world.name}, {finding.summary}"
        where, fix = {**finding.where, "engine": world.name}, finding.fix or _fix(world)
        raise Failed(replace(finding, summary=summary, where=where, fix=fix)) from error
    return True


INDEX = re.compile(r"(?:index|is|holds) (\d+)")
"""The index in the text of an exception, or in its cause."""


def _of_prompt_ids(finding: Finding, size: int) -> Finding:
    """Return the finding with the rule's own fix if an index is one of the ids beyond a vocabulary of this size."""
    values, _, why = finding.cause.rpartition("; ")
    index = next((n for n in INDEX.findall(f"{finding.summary} {values}") if int(n) in _beyond(size)), "")
    no_token = advice.cause("no token", "exception").format(index=index, size=size)
    if not index or why not in (no_token, *(advice.cause(key, "exception") for key in ("one beyond", "IndexError"))):
        return finding
    return replace(finding, cause="; ".join(filter(None, (values, no_token))), fix="")


def _beyond(size: int) -> list[int]:
    """Return the ids of a prompt that a vocabulary of this size lacks."""
    return [size, size + 1000]


def _fix(world: World) -> str:
    return advice.fix(world.fix, LP221.code) if world.fix else ""


def _compare(there: Subject, peers: Subject) -> None:
    """Fail if a request gets other logits in a batch ``there`` than alone with the ``peers``."""
    world = there.setup.world
    # A request that is alone in the batch has nothing to be compared with.
    everyone = tuple(dict.fromkeys((*world.variants, *there.others)))
    variants = everyone if len(world.variants) > 1 else ()

    def served(most_asked: int) -> tuple[list[Seen], list[Seen]]:
        together = run(there, [_request(there, variant, most_asked) for variant in everyone])
        return together, [run(peers, [_request(there, variant, most_asked)])[0] for variant in variants]

    together, alone = stand.allowed(there, served)
    for variant, rows, lone in zip(variants, together, alone, strict=False):
        for (row, before, after), (_, _, expected) in zip(rows, lone, strict=False):
            difference = compare.first_difference(before, expected, after)
            if difference is not None:
                case = None if variant is None else there.cases[variant % len(there.cases)]
                use = f"with {case.text}" if case else "without the plugin"
                summary = f"in an engine with {world.name}, a request {use} gets different logits than {world.peer}"
                runs = [partial(run, each, [_request(there, variant, stand.MOST_ASKED)]) for each in (there, peers)]
                line = parting_of(*runs)[1]
                line = line or findings.at_fault(peers, "apply")
                where = {"engine": world.name, "row": str(row)}
                raise differing(summary, where, difference, fix=_fix(world), location=line)


DIFFERENT = 300
"""Different tokens at the beginning of long outputs."""

REPEATED = 1500
"""Times that the longest outputs repeat one token at their end, as a model in a loop does."""

SEATS = 3
"""Requests at a time, where they come and go."""

Seen: TypeAlias = "list[tuple[int, torch.Tensor, torch.Tensor]]"
"""In each step the number of a request's row, and the row ``[1, vocab]`` before and after."""


def run(subject: Subject, requests: Sequence[runtime.Request]) -> list[Seen]:
    """Return what each request sees. Where steps are recorded, a request comes in each step, into a row and a slot that
    others have left; elsewhere all come at once."""
    world, batch = subject.setup.world, list[runtime.Request]()
    arrivals = [[request] for request in requests] if world.recorded else [[*requests]]
    seats = SEATS if world.recorded else max(len(world.variants), len(requests))
    seen: dict[str, Seen] = {request.request_id: [] for request in requests}
    with recorded_steps.recording() if world.recorded else nullcontext():
        driver = parts.drive(subject, seats)
        for step in range(len(arrivals) + world.steps - 1):
            entering = arrivals[step] if step < len(arrivals) else []
            taken = slice(step % seats, step % seats + len(entering))
            leaving = [request.request_id for request in batch[taken]]
            batch[taken] = entering
            with driver.watched(engine_data.leaving_lists(subject, lambda: batch, world.name)):
                driver.begin(leaving, entering)
                before, after = stand.stepped(subject, driver, batch)
            for row, request in enumerate(batch):
                seen[request.request_id].append((row, before[row : row + 1], after[row : row + 1]))
            stand.continued(subject, driver, batch, after)
    return [*seen.values()]


def _request(subject: Subject, variant: int | None, most_asked: int) -> runtime.Request:
    world, name = subject.setup.world, f"w{variant}"
    request = requests.make_active(subject, Arrive(name, variant, prompt_len=6)).request
    if world.beyond and request.prompt_token_ids is not None:
        request.prompt_token_ids[0:2] = _beyond(subject.setup.vocab_size)
    outputs = max(0, min(world.outputs, (subject.most_outputs(variant) or world.max_model_len) - world.steps))
    request.output_token_ids += stand.generated(subject, name, variant, request, outputs, most_asked)
    size = subject.setup.vocab_size
    count = min(DIFFERENT, size)
    if outputs > count and not stand.masks(subject):  # more different tokens than a byte counts, never seen again
        request.output_token_ids[:count] = range(size - count, size)
        if outputs > 10 * REPEATED:
            request.output_token_ids[-REPEATED:] = request.output_token_ids[-1:] * REPEATED
    return request
