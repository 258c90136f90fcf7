"""LP2, continued: the same requests in engines that are set up otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from lpkit.runtime import Request

from lpkit_conformance.activity.stand import allowed, generated
from lpkit_conformance.checks.base import STATE, Check
from lpkit_conformance.checks.engine_lists import leaving_lists
from lpkit_conformance.checks.exact_ids import compare_ids
from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.hosts.worlds import BEYOND, LARGE_VOCABULARY, SECOND_RANK, USUAL, WORLDS, World
from lpkit_conformance.oracle.compare import first_difference
from lpkit_conformance.oracle.findings import raised
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.results import Failed
from lpkit_conformance.settings.hosts import RUNNER_HOSTS


class LP221(Check):
    """Other engines work.

    A short run each with a vocabulary that is not a multiple of 32, with more than 1,024 and with 20,000 output tokens,
    with asynchronous scheduling and a list of end tokens, with speculative decoding configured (a constructor may
    refuse that with ``ValueError``), and on the second of two ranks, where the edits are those of the first. In a
    vocabulary beyond 65,536 tokens the logit of the same token is edited as in a small one: of the one that an argument
    names, or of one in the prompt or last in the output. The engine's token lists stay as they are, however long.

    Why: buffers of 1,024 tokens, masks of whole words of 32 bits, and ``int(eos_token_id)`` work with most models, and
    stop the engine with the next. Ids in half precision are others from 2,049 on. A rank that edits nothing samples
    other tokens than its peers.

    Fix: take sizes from the configuration and the logits, and test ids against the vocabulary's size before you index
    with them.
    """

    code, name, hosts, method = "LP221", "other-engines", RUNNER_HOSTS, STATE
    requires = ("LP101", "LP301", "LP201", "LP207", "LP214")

    def run(self, subject: PluginUnderTest) -> str | None:
        refused = [world.name for world in WORLDS if not works(subject, world)]
        large = moved(subject, LARGE_VOCABULARY)
        try:
            compare_ids(subject, large)
        except PluginError as error:
            raise _located(large, error) from error
        return f"the constructor refuses {', '.join(refused)}" if refused else f"{len(WORLDS) + 1} engines"


class LP222(Check):
    """Prompt ids may lie outside the vocabulary.

    Prompts may hold ids that the logits have no column for: of tokens that were added to the tokenizer, or of
    embeddings.

    Why: ``logits[row, prompt_ids]`` and a table of ``vocab_size`` counts raise, or read another row's memory on a GPU:
    one prompt stops the engine for everyone. Advice, because vLLM lets such ids in with few models only.

    Fix: drop prompt ids of ``vocab_size`` and above before you index with them.
    """

    code, name, tier = "LP222", "prompt-ids-beyond", "advice"
    requires = ("LP101", "LP301", "LP201", "LP207")

    def run(self, subject: PluginUnderTest) -> str | None:
        works(subject, BEYOND)
        return None


def works(subject: PluginUnderTest, world: World) -> bool:
    """False if the constructor refuses, where it may.

    Raises:
        Failed: if it does not work there.
    """
    there = moved(subject, world)
    try:
        together = allowed(there, lambda: run(there, [_request(there, variant) for variant in world.variants]))
        peers = moved(subject, USUAL) if world is SECOND_RANK else there
        # Who is alone in the batch anyway has nothing to be compared with.
        variants = world.variants if len(world.variants) > 1 else ()
        alone = [run(peers, [_request(there, variant)]) for variant in variants]
    except PluginError as error:
        if world.may_refuse and error.method == "__init__" and isinstance(error.__cause__, ValueError):
            return False
        raise _located(there, error) from error
    for row, variant in enumerate(variants):
        for step in range(world.steps):
            before, after = together[step]
            found = first_difference(before[row : row + 1], alone[row][step][1], after[row : row + 1])
            if found is not None:
                _, token, expected, got, _ = found
                use = (
                    "without the plugin"
                    if variant is None
                    else f"with {subject.cases[variant % len(subject.cases)].text}"
                )
                than = "on the first rank" if world is SECOND_RANK else "alone"
                raise Failed(
                    f"in an engine with {world.name}, a request {use} gets different logits than {than}",
                    {"engine": world.name, "token id": str(token)},
                    f"{expected:g}",
                    f"{got:g}",
                    fix=world.fix,
                )
    return True


def _located(subject: PluginUnderTest, error: PluginError) -> Failed:
    """What the plugin raised, and in which engine."""
    finding, world = raised(subject.cls, error), subject.world
    summary = f"in an engine with {world.name}, {finding.summary}"
    where, fix = {**finding.where, "engine": world.name}, finding.fix or world.fix
    return Failed(replace(finding, summary=summary, where=where, fix=fix))


def moved(subject: PluginUnderTest, world: World) -> PluginUnderTest:
    """The plugin in another engine."""
    size = subject.vocab_size + world.more_tokens
    return replace(subject, world=world, vocab_size=size, solo_runs=None, odd_requests=None, histories={})


def run(subject: PluginUnderTest, requests: Sequence[Request]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The logits before and after each step; requests in the order of their rows."""
    driver = drive(subject, len(subject.world.variants))
    seen = []
    for step in range(subject.world.steps):
        raw = subject.rows([(request.request_id, request.total_len) for request in requests])
        before = driver.stage(raw, [request.params for request in requests])
        with driver.watched(leaving_lists(subject, lambda: requests, subject.world.name)):
            driver.begin(entering=() if step else requests)
            seen.append((before, driver.step(before, requests)))
        wanted = [subject.emit(request.request_id, 0, len(request.output_token_ids)) for request in requests]
        for request, token in zip(requests, subject.sampled(wanted, seen[-1][1]), strict=True):
            driver.commit(request, [token])
    return seen


def _request(subject: PluginUnderTest, variant: int | None) -> Request:
    world, name = subject.world, f"w{variant}"
    request = make_active(subject, Arrive(name, variant, prompt_len=6)).request
    if world.beyond and request.prompt_token_ids is not None:
        request.prompt_token_ids[0:2] = [subject.vocab_size, subject.vocab_size + 1000]
    request.output_token_ids += generated(subject, name, variant, request, world.outputs)
    return request
