"""The built-in thinking budget on both reference engines, by hand; against vLLM's own in tests/engine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit.runtime import LogitsSource, Request, ThinkingMarkers, V1AsyncEngine, V1Engine, V2Engine
from lpkit.runtime.sampler.thinking import forced_token, last_occurrence
from lpkit.sampling_params import SamplingParams

MARKERS = ThinkingMarkers(start=(10,), end=(11, 12))
ENGINES = [V1Engine, V1AsyncEngine, V2Engine]


class Says(LogitsSource):
    """A model that wants to say token 5 for ever."""

    def rows(self, keys: Any) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.full((len(keys),), 5), 128).float()


def run(kind: Any, prompt: list[int], budget: int | None, steps: int, **fields: Any) -> list[int]:
    engine = kind(source=Says(128, 0, torch.device("cpu")), thinking=MARKERS)
    params = SamplingParams(temperature=0.0, thinking_token_budget=budget, **fields)
    engine.add(Request("r", params, prompt))
    engine.add(Request("other", SamplingParams(temperature=0.0), prompt))
    for _ in range(steps):
        engine.step()
    assert engine.requests["other"].output_token_ids == [5] * steps
    return list(engine.requests["r"].output_token_ids)


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize(
    ("prompt", "budget", "fields", "reply"),
    [
        ([1, 10], 3, {}, [5, 5, 5, 11, 12, 5]),
        ([1, 10, 5, 5], 3, {}, [5, 11, 12, 5, 5, 5]),
        ([1, 10], 0, {}, [11, 12, 5, 5]),
        ([1, 2], 0, {}, [5] * 6),
        ([10, 5, 11, 12], 0, {}, [5] * 6),
        ([1, 10], None, {}, [5] * 6),
        ([1, 10], 1, {"logit_bias": {5: 90.0}}, [5, 11, 12]),
    ],
    ids=["opened by the prompt", "begun in the prompt", "no budget", "no thought", "closed", "no limit", "a bias"],
)
def test_an_open_thought_ends_after_its_budget(
    kind: Any, prompt: list[int], budget: int | None, fields: dict[str, Any], reply: list[int]
) -> None:
    assert run(kind, prompt, budget, len(reply), **fields) == reply


def test_v2_goes_on_with_a_marker_that_the_model_began() -> None:
    assert forced_token([10, 5, 5, 11], 1, MARKERS) == 12
    assert forced_token([10, 5, 5, 12], 1, MARKERS) == 11


def test_a_thought_that_begins_again_counts_anew() -> None:
    assert forced_token([10, 5, 5, 11, 12, 10, 5], 2, MARKERS) is None
    assert forced_token([10, 5, 5, 11, 12, 10, 5, 5], 2, MARKERS) == 11


@pytest.mark.parametrize(
    ("ids", "wanted", "place"), [([1, 2, 1, 2], [1, 2], 2), ([1, 2], [2, 1], -1), ([1], [1, 1], -1), ([1, 2], [], -1)]
)
def test_the_last_occurrence_is_found(ids: list[int], wanted: list[int], place: int) -> None:
    assert last_occurrence(ids, wanted) == place


def test_the_configuration_tells_processors_of_the_markers() -> None:
    config = V2Engine(device="cpu", thinking=MARKERS).config.reasoning_config
    assert config.reasoning_end_token_ids == config.natural_reasoning_end_token_ids == [11, 12]
    assert V2Engine(device="cpu").config.reasoning_config is None
