"""A plan survives its JSON, as a process that runs it gets it."""

from __future__ import annotations

import json
from dataclasses import fields

from lpkit_conformance.processes.codec import decode, encode
from lpkit_conformance.programs.generate import Arrive, Program, Step
from lpkit_conformance.settings.cases import Case, Requests
from lpkit_conformance.settings.plan import Plan

CASE = Case({"extra_args": {"bias": [1, 2]}}, prompt_token_ids=(3,), reasoning={"start": (1,), "end": (2,)})
FULL = Plan(
    cases=(CASE, Case({"temperature": 0.5})),
    hosts=("v1",),
    select=("LP2",),
    ignore=("LP203",),
    vocab_size=256,
    max_num_seqs=4,
    seed=7,
    device="cuda",
    unproven="the requests had others",
    first=("LP205",),
    alone=True,
    requests=Requests((CASE,), (None, {"other_plugin_key": 1})),
    others=(Case({"top_p": 0.5}),),
    program=Program("p", (Arrive("a", 0), Step(2)), 4),
    trace=("v1_churn", "alone"),
    release=(0, 30),
    standin=True,
    bystanders=frozenset({7}),
    quick=True,
    environment={"A": "b"},
    model={"think_end_id": 7},
    tokenizer="folder",
)


def test_every_field_of_a_plan_survives_json() -> None:
    default = Plan()
    assert not [item.name for item in fields(Plan) if getattr(FULL, item.name) == getattr(default, item.name)]
    assert decode(Plan, json.loads(json.dumps(encode(FULL)))) == FULL
    assert decode(Plan, json.loads(json.dumps(encode(default)))) == default


def test_a_key_that_is_missing_has_its_default() -> None:
    assert decode(Plan, {}) == Plan()
    assert decode(Plan, {"seed": 3}) == Plan(seed=3)
