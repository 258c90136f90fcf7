"""Correct V1 classes, bridged, before the whole suite; and the two runners side by side on the reference engines."""

from __future__ import annotations

import logging
import sys
from typing import Any

import lpkit
import pytest
import torch
import zoo
from lpkit.runtime import Engine, Request, Scheduler, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.settings.cases import Case, make_params
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from zoo.arguments import number
from zoo.bases import Late
from zoo.correct.v1 import V1Base
from zoo.lp109 import RefusesServerFields
from zoo.lp301 import UsesItsCopyLate

NO_DRAFTS = "WeighsUpToItsLimit"
"""Raises beyond `max_tokens`, where an engine that drafts has rows, too."""

V1_ONLY = [specimen for specimen in zoo.CORRECT if specimen.style == "v1" and specimen.name != NO_DRAFTS]
MORE = (
    *("GreenList", "HoldsTheList", "KeepsByAddress", "Lazy", "OutOfPlace", "OwnGenerator", "RefusesDrafts"),
    *("UsesStopToken", "WiderBuffer"),
)
"""Processors that hold lists, objects or rows longer than a call, have a generator, claim argmax invariance, or return
other tensors than they are given."""

OF_PROCESSES = ("LP604", "LP606")
LONG = ("LP219", "LP220", "LP221", "LP603", "LP801", "LP808")
OF_THE_CLASS = ("LP0", "LP1", "LP4", "LP6", "LP7")
"""Families that ask about the class itself, on which a bridge does not act."""
MODULE = sys.modules[__name__]


def bridged(specimen: zoo.Specimen, keys: tuple[str, ...] = ()) -> Any:
    """The specimen's class behind a bridge, as an attribute of this module."""
    name = f"Bridged{specimen.name}{'ByKey' if keys else ''}"
    if not hasattr(MODULE, name):
        made = lpkit.bridge(specimen.target, keys=keys, name=name)
        setattr(MODULE, name, made)
    return getattr(MODULE, name)


def blamed(target: Any, case: Case, *hosts: str, ignore: tuple[str, ...] = OF_PROCESSES) -> list[str]:
    logging.getLogger("lpkit").setLevel(logging.ERROR)
    plan = Plan(cases=(case,), hosts=hosts, ignore=ignore)
    results = list(Session(target.__name__, target, plan).results())
    assert {result.host for result in results} >= set(hosts)
    return [
        f"{result.label} {result.status}: {result.message} {result.finding or ''}"
        for result in results
        if result.status in ("failed", "blocked", "error")
    ]


# On V1 the engine holds the class itself, which the zoo's own test puts before the suite.


@pytest.mark.broad
@pytest.mark.parametrize("name", MORE)
def test_a_correct_v1_class_behind_a_bridge_passes_the_short_checks_on_v2(name: str) -> None:
    specimen = zoo.specimen(f"v1-{name}")
    assert not blamed(bridged(specimen), specimen.case, "v2", ignore=OF_THE_CLASS + LONG)


@pytest.mark.parametrize(
    "specimen",
    [
        pytest.param(item, id=item.name, marks=() if item.name == "ForcedSequence" else pytest.mark.deep)
        for item in V1_ONLY
    ],
)
def test_a_correct_v1_class_behind_a_bridge_passes_every_check_on_v2(specimen: zoo.Specimen) -> None:
    assert not blamed(bridged(specimen), specimen.case, "v2")


@pytest.mark.deep
def test_a_class_that_raises_beyond_its_limit_fails_where_drafts_go_beyond_it() -> None:
    specimen = zoo.specimen(f"v1-{NO_DRAFTS}")
    failures = [text for text in blamed(bridged(specimen), specimen.case, "v2") if " failed: " in text]
    assert [text.partition(" ")[0] for text in failures] == ["LP808[v2]"] and "IndexError" in failures[0], failures


@pytest.mark.parametrize("name", ["CountingCache", pytest.param("NoRepeatBigram", marks=pytest.mark.broad)])
def test_so_it_does_when_only_requests_with_its_keys_are_shown(name: str) -> None:
    specimen = zoo.specimen(f"v1-{name}")
    target = bridged(specimen, tuple(specimen.case.fields["extra_args"]))
    assert not blamed(target, specimen.case, "v1", "v2", ignore=OF_PROCESSES + LONG)


def never_twice(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    if output_ids:
        logits[output_ids[-1]] = float("-inf")
    return logits


def of_the_request(params: SamplingParams) -> Any:
    return never_twice if (params.extra_args or {}).get("no_repeat") else None


NeverTwice = lpkit.bridge(never_twice, keys="no_repeat", name="NeverTwice")
OfTheRequest = lpkit.bridge(of_the_request, name="OfTheRequest")


@pytest.mark.parametrize(
    "target", [NeverTwice, pytest.param(OfTheRequest, marks=pytest.mark.broad)], ids=lambda item: item.__name__
)
def test_a_correct_callable_or_factory_behind_a_bridge_passes_the_short_checks_on_both_hosts(target: Any) -> None:
    assert not blamed(target, Case.parse({"extra_args": {"no_repeat": True}}), "v1", "v2", ignore=OF_PROCESSES + LONG)


# Both runners


def processed(engine: Engine, case: dict[str, Any]) -> dict[tuple[str, int], torch.Tensor]:
    """Each request's processed logits by position, with preemption and prompts in pieces; every third is not ours."""
    scheduler = Scheduler(engine, max_num_batched_tokens=23, num_blocks=9, block_size=8)
    for n in range(12):
        fields = {"temperature": (1.0, 0.7)[n % 2], "max_tokens": 12, **(case if n % 3 else {})}
        prompt = [3 + (n * 7 + i) % 40 for i in range(3 + 2 * n)]
        scheduler.submit(Request(f"r{n}", make_params(fields), prompt), at_step=n // 3)
    rows: dict[tuple[str, int], torch.Tensor] = {}
    while scheduler.unfinished:
        result = scheduler.step()
        for row, logits in zip(result.rows, () if result.processed is None else result.processed, strict=True):
            if not row.discarded:
                rows[row.request_id, row.position] = logits.clone()
    assert scheduler.num_preemptions
    return rows


# These requests are too short for rules that begin late, and have a temperature; at a stop token one of two would end
# earlier.
ON_BOTH = [
    item
    for item in V1_ONLY
    if "extra_args" in item.case.fields
    and "stop_token_ids" not in item.case.fields
    and not issubclass(item.target, Late | UsesItsCopyLate | RefusesServerFields)
]


@pytest.mark.parametrize(
    "specimen",
    [
        pytest.param(item, id=item.name, marks=pytest.mark.broad if number % 4 else ())
        for number, item in enumerate(ON_BOTH)
    ],
)
def test_both_runners_choose_by_the_same_logits(specimen: zoo.Specimen) -> None:
    case = dict(specimen.case.fields)
    options: dict[str, Any] = {"vocab_size": 512, "max_num_seqs": 4, "device": "cpu"}
    one = processed(V1Engine([specimen.target], **options), case)
    two = processed(V2Engine([bridged(specimen)], **options), case)
    bare = processed(V2Engine([], **options), case)
    assert one.keys() == two.keys() == bare.keys()
    assert any(not torch.equal(two[key], bare[key]) for key in two), "the processor never acted"
    for key, row in one.items():
        torch.testing.assert_close(row, two[key], rtol=1e-6, atol=1e-6)


class EitherKey(V1Base):
    """Two arguments; each alone switches the processor on."""

    CASE = Case({"extra_args": {"raise_5": 2.0, "raise_6": 3.0}})

    @classmethod
    def read(cls, params: Any) -> Any:
        found = {token: number(params, f"raise_{token}") for token in (5, 6)}
        return {token: by for token, by in found.items() if by is not None} or None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, raised in self.rows.items():
            for token, by in raised.items():
                logits[row, token] += by
        return logits


def test_a_key_that_the_bridge_does_not_name_is_found_and_named() -> None:
    target = lpkit.bridge(EitherKey, keys=("raise_5",), name="HalfOfTheKeys")
    MODULE.HalfOfTheKeys = target
    results = Session("it", target, Plan(cases=(EitherKey.CASE,), select=("LP403",))).results()
    (failed,) = [result for result in results if result.status == "failed"]
    assert failed.code == "LP403" and failed.finding is not None
    assert "`keys` names none of the request's arguments (raise_6)" in failed.finding.cause
