"""Our definitions against vLLM's own code: the same objects where vLLM is installed, equal behaviour elsewhere."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import random
from types import ModuleType
from typing import Any

import pytest
from lpkit.interfaces import sampling_params as own_params
from lpkit.interfaces import v1_interface as own_v1
from lpkit.interfaces import v2_interface as own_v2

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]


def vllms(name: str) -> ModuleType:
    return importlib.import_module(f"vllm.{name}")


V1_NAMES = [
    ("BatchUpdate", "v1.sample.logits_processor.interface"),
    ("BatchUpdateBuilder", "v1.sample.logits_processor.state"),
    ("LogitsProcessor", "v1.sample.logits_processor.interface"),
    ("LogitsProcessors", "v1.sample.logits_processor.state"),
    ("MoveDirectionality", "v1.sample.logits_processor.interface"),
    ("AddedRequest", "v1.sample.logits_processor.interface"),
    ("MovedRequest", "v1.sample.logits_processor.interface"),
    ("RemovedRequest", "v1.sample.logits_processor.interface"),
    ("RequestLogitsProcessor", "v1.sample.logits_processor"),
    ("process_dict_updates", "v1.sample.logits_processor.builtin"),
]
V2_HOME = "v1.worker.gpu.sample.logits_processor"
NAMES = [
    *(("lpkit.v1", name, home) for name, home in V1_NAMES),
    *(("lpkit.v2", name, V2_HOME) for name in ("LogitsContext", "LogitsProcRequestState", "LogitsProcessor")),
    ("lpkit.sampling_params", "SamplingParams", "sampling_params"),
]


def test_every_v1_name_is_listed_here() -> None:
    from lpkit import v1

    assert sorted(name for name, _ in V1_NAMES) == sorted(v1.__all__)


@pytest.mark.parametrize(("module", "name", "home"), NAMES)
def test_a_name_of_lpkit_is_vllms_own_object(module: str, name: str, home: str) -> None:
    assert getattr(importlib.import_module(module), name) is getattr(vllms(home), name)


@pytest.mark.needs_release("0.31")
def test_fields_and_abstract_methods_are_equal() -> None:
    theirs_v1 = vllms("v1.sample.logits_processor")
    theirs_v2 = vllms("v1.worker.gpu.sample.logits_processor")
    pairs: list[tuple[Any, Any]] = [
        (own_v1.BatchUpdate, theirs_v1.BatchUpdate),
        (own_v2.LogitsContext, theirs_v2.LogitsContext),
        (own_v2.LogitsProcRequestState, theirs_v2.LogitsProcRequestState),
    ]
    for ours, theirs in pairs:
        assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    for ours, theirs in (
        (own_v1.LogitsProcessor, theirs_v1.LogitsProcessor),
        (own_v2.LogitsProcessor, theirs_v2.LogitsProcessor),
    ):
        assert ours.__abstractmethods__ == theirs.__abstractmethods__
        public = {name for name in vars(theirs) if not name.startswith("_")}
        assert public == {name for name in vars(ours) if not name.startswith("_")}


class Twins:
    """The same random update, built from our classes and from vLLM's."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.theirs = vllms("v1.sample.logits_processor")

    def update(self) -> tuple[Any, Any]:
        pick, rows = self.random, 8
        removed = sorted(pick.sample(range(rows), pick.randrange(4)), reverse=True)
        # Params are opaque to the helper, so that they can be the states themselves, falsy ones included.
        added = [
            (pick.randrange(rows), pick.choice([None, 0, "", {}, "a", "b", 7]), pick.choice([None, [1]]), [])
            for _ in range(pick.randrange(4))
        ]
        moves = [
            (pick.randrange(rows), pick.randrange(rows), pick.choice(["SWAP", "UNIDIRECTIONAL"]))
            for _ in range(pick.randrange(4))
        ]
        made = []
        for module in (own_v1, self.theirs):
            moved = [(a, b, module.MoveDirectionality[kind]) for a, b, kind in moves]
            made.append(module.BatchUpdate(rows, removed, added, moved))
        return made[0], made[1]


def test_process_dict_updates_agrees_on_5000_random_updates() -> None:
    theirs = vllms("v1.sample.logits_processor.builtin").process_dict_updates
    twins = Twins(0)
    state: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
    for step in range(5000):
        ours_update, theirs_update = twins.update() if twins.random.random() > 0.05 else (None, None)
        before = copy.deepcopy(state[0])
        results = (
            own_v1.process_dict_updates(state[0], ours_update, lambda params, *_: params),
            theirs(state[1], theirs_update, lambda params, *_: params),
        )
        assert results[0] == results[1], (step, before, ours_update)
        # The order of a sparse state is observable too: an author's tensors are built from it.
        assert list(state[0].items()) == list(state[1].items()), (step, before, ours_update)


BUILDER_CALLS = ("append", "read", "peek", "pop", "has", "add", "move", "reset", "get", "flag")


def perform(builder: Any, call: str, row: int, swap: Any) -> Any:
    """One call's observable outcome."""
    try:
        if call == "append":
            return builder.removed_append(row)
        if call == "read":
            return list(builder.removed)
        if call in ("peek", "pop", "has"):
            return getattr(builder, {"has": "has_removed"}.get(call, f"{call}_removed"))()
        if call == "add":
            return builder.added.append((row, None, None, []))
        if call == "move":
            return builder.moved.append((row, row + 1, swap))
        if call == "reset":
            return builder.reset()
        if call == "flag":
            return builder.batch_changed
        update = builder.get_and_reset(row)
        if update is None:
            return None
        moved = [(a, b, kind.name) for a, b, kind in update.moved]
        return (update.batch_size, list(update.removed), list(update.added), moved)
    except RuntimeError:
        return RuntimeError


def test_batch_update_builder_agrees_on_20000_random_calls() -> None:
    theirs = vllms("v1.sample.logits_processor")
    pick = random.Random(1)
    ours_builder, theirs_builder = own_v1.BatchUpdateBuilder(), theirs.BatchUpdateBuilder()
    history: list[tuple[str, int]] = []
    refused = 0
    for _ in range(20_000):
        call, row = pick.choice(BUILDER_CALLS), pick.randrange(8)
        history.append((call, row))
        ours = perform(ours_builder, call, row, own_v1.MoveDirectionality.SWAP)
        expected = perform(theirs_builder, call, row, theirs.MoveDirectionality.SWAP)
        assert ours == expected, history[-12:]
        refused += ours is RuntimeError
    assert refused > 100, "the sequence never exercised a late removal"


def test_logits_processors_split_agrees() -> None:
    class Claim:
        def __init__(self, claim: bool) -> None:
            self.claim = claim

        def is_argmax_invariant(self) -> bool:
            return self.claim

    pick = random.Random(2)
    for _ in range(200):
        processors: list[Any] = [Claim(pick.random() < 0.5) for _ in range(pick.randrange(6))]
        ours = own_v1.LogitsProcessors(processors)
        theirs = vllms("v1.sample.logits_processor").LogitsProcessors(processors)
        assert list(ours.all) == list(theirs.all)
        assert ours.argmax_invariant == theirs.argmax_invariant


PARAMS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0, "top_p": 0.5, "top_k": 9, "min_p": 0.2},
    {"temperature": 1e-6, "top_k": 9},
    {"temperature": 0.005},
    {"temperature": 2.5},
    {"temperature": -1.0},
    {"temperature": float("nan")},
    {"top_k": -1},
    {"top_k": -2},
    {"top_p": 0.0},
    {"min_p": 1.1},
    {"n": 0},
    {"n": 2, "temperature": 0.0},
    {"n": 3},
    {"max_tokens": 0},
    {"max_tokens": None, "min_tokens": 40},
    {"min_tokens": 9, "max_tokens": 8},
    {"repetition_penalty": 0.0},
    {"repetition_penalty": 7.0},
    {"presence_penalty": 2.1},
    {"frequency_penalty": -2.1},
    {"seed": -1},
    {"stop": "x"},
    {"stop": [""]},
    {"bad_words": [""]},
    {"logprobs": -2},
    {"thinking_token_budget": -1},
    {"thinking_token_budget": -3},
    {"extra_args": {"x": 2**64 - 1}},
    {"logit_bias": {3: 500.0}},
]
# vLLM drops what is there twice since 0.29, and refuses integers beyond 64 bits since 0.30.
PARAMS_SINCE: dict[str, list[dict[str, Any]]] = {
    "0.29": [{"stop_token_ids": [4, 4, 2]}, {"bad_words": ["a", "a"]}],
    "0.30": [{"extra_args": {"x": 2**64}}, {"extra_args": {"x": [{"y": -(2**63) - 1}]}}],
}


@pytest.mark.parametrize(
    "options",
    [
        *PARAMS,
        *(
            pytest.param(options, marks=pytest.mark.needs_release(release))
            for release, newer in PARAMS_SINCE.items()
            for options in newer
        ),
    ],
    ids=str,
)
def test_sampling_params_normalise_and_refuse_alike(options: dict[str, Any]) -> None:
    def outcome(cls: Any) -> Any:
        try:
            made = cls(**copy.deepcopy(options))
        except Exception:
            return "refused"
        found = {field.name: getattr(made, field.name) for field in dataclasses.fields(own_params.SamplingParams)}
        return {**found, "sampling_type": made.sampling_type}

    assert outcome(own_params.SamplingParams) == outcome(vllms("sampling_params").SamplingParams)
