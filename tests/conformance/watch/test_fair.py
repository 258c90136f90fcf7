"""The watcher blames no correct processor of the zoo, in batches with prompt chunks, preemption and reused rows."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from lpkit.loading import interfaces_of
from lpkit.runtime import Request, Scheduler, V1Engine, V2Engine
from lpkit_conformance.settings.cases import make_params
from lpkit_conformance.watch.install import watch
from lpkit_conformance.watch.settings import WatchSettings
from zoo import CORRECT, Specimen
from zoo.lp109 import RefusesServerFields

CLASSES = [
    specimen
    for specimen in CORRECT
    if specimen.style in ("v1", "v2", "portable", "adapter") and isinstance(specimen.target, type)
    if specimen.target is not RefusesServerFields  # of the temperature that the requests have
]
UNWATCHED = {"MethodsAsProperties"}
"""Their methods cannot be replaced."""


@pytest.mark.parametrize("specimen", CLASSES, ids=lambda specimen: specimen.id)
def test_a_correct_processor_is_not_blamed(specimen: Specimen) -> None:
    with specimen.surroundings():
        for runner in {"v1", "v2"} & set(interfaces_of(specimen.target)):
            tally = watched(specimen, runner, seed=1)
            assert len(tally.processors) == (specimen.name not in UNWATCHED)
            for seen in tally.processors.values():
                assert (seen.violations, tally.errors) == ({}, 0)
                assert seen.rows


def watched(specimen: Specimen, runner: str, seed: int) -> Any:
    tallies: list[Any] = []

    def factory(config: Any, *rest: Any) -> Any:
        processor = specimen.target(config, *rest)
        settings = WatchSettings(budget=1.0, interval=60.0)
        tallies.append(watch(runner, [processor], (config, *rest), settings, None, "0.0.0"))  # type: ignore[arg-type]
        return processor

    engine = {"v1": V1Engine, "v2": V2Engine}[runner]
    scheduler = Scheduler(
        engine([factory], vocab_size=512, max_num_seqs=6, device="cpu", seed=seed),
        max_num_batched_tokens=12,
        num_blocks=14,
        block_size=4,
    )
    case = json.loads(specimen.case.text)
    given = {key: value for key, value in case.items() if not key.endswith("_token_ids") and key != "reasoning"}
    rng = random.Random(seed)
    for number in range(8):
        own = given if rng.random() < 0.6 else {}
        params = make_params({"temperature": rng.choice((0.5, 0.7))} | own)
        prompt = [rng.randrange(3, 500) for _ in range(rng.randint(1, 20))]
        scheduler.submit(Request(f"q{number}", params, prompt, rng.randint(1, 8)), number // 2)
    scheduler.run()
    return tallies[0]
