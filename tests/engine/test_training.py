"""A real vLLM's processed log-probabilities, and what ``lpkit.train`` makes of the same model's raw logits."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from lpkit import train
from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine.beyond_cpu import cut_in_torch
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.show.playing import Part, Playing, Processor, ShownRequest

pytestmark = pytest.mark.engine

TARGETS = {"penalties": "lpkit_penalties.processor:Penalties", "min_p": "lpkit_min_p.processor:MinP"}
PENALTIES = {"penalties_repetition": 1.6, "penalties_presence": 0.4, "penalties_frequency": 0.3}
MIN_P = {"min_p_threshold": 0.4}
STAGES = {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": -0.5, "min_p": 0.2}
FEW = {"allowed_token_ids": list(range(30, 60))}  # tokens come again
WANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "plugin": ("penalties", {"temperature": 0.8, "extra_args": PENALTIES, **FEW}),
    "plugin among stages": ("penalties", {"temperature": 1.3, "extra_args": PENALTIES, **STAGES, **FEW}),
    "plugin of the sampling stage": ("min_p", {"temperature": 0.6, "extra_args": MIN_P, "top_k": 100}),
    "that among stages": ("min_p", {"temperature": 1.7, "extra_args": MIN_P, "top_p": 0.8, **STAGES, **FEW}),
    "stages alone": ("penalties", {"temperature": 0.7, "top_k": 20, "top_p": 0.9, **STAGES, **FEW}),
    "greedy": ("penalties", {"temperature": 0.0, "extra_args": PENALTIES, "presence_penalty": 1.0, **FEW}),
    "nothing": ("penalties", {"temperature": 1.0}),
}


class Rollout(NamedTuple):
    runner: Any
    prompts: dict[str, tuple[int, ...]]
    responses: dict[str, list[int]]
    reported: dict[str, np.ndarray]
    raw: dict[str, np.ndarray]


@pytest.fixture(scope="module", params=["v1", "v2"])
def rollout(request: pytest.FixtureRequest, engines: Callable[..., EngineProcess]) -> Rollout:
    """The same seeded requests twice: once for what vLLM reports, once for the model's logits."""
    asks = [
        Ask(name, tuple(range(30 + n, 50 + 2 * n)), {"max_tokens": 12, "seed": n, **options}, logits=True)
        for n, (name, (_, options)) in enumerate(WANTED.items())
    ]
    answers = []
    for mode in ("processed_logprobs", "raw_logits"):
        engine = engines(EngineSettings(request.param, logprobs_mode=mode), tuple(TARGETS.values()))
        if request.param == "v2":
            engine.inspect(cut_in_torch)
        answers.append(engine.generate(asks))
    reported, raw = answers
    assert [answer.error for answer in reported.values()] == [None] * len(asks)
    assert all(raw[name].token_ids == reported[name].token_ids for name in WANTED)
    return Rollout(
        request.param,
        {ask.request_id: ask.prompt_token_ids for ask in asks},
        {name: answer.token_ids for name, answer in reported.items()},
        {name: answer.rows for name, answer in reported.items()},
        {name: answer.rows for name, answer in raw.items()},
    )


def arguments(name: str, rollout: Rollout) -> tuple[tuple[Any, ...], dict[str, Any]]:
    module, _, cls = TARGETS[WANTED[name][0]].partition(":")
    options = dict(WANTED[name][1])
    parameters = options.pop("extra_args", None)
    return (
        getattr(importlib.import_module(module), cls),
        parameters,
        list(rollout.prompts[name]),
        rollout.responses[name],
        torch.from_numpy(rollout.raw[name]),
    ), {"sampling": options, "runner": rollout.runner}


@pytest.mark.parametrize("name", WANTED)
def test_the_processed_distribution_is_vllms(name: str, rollout: Rollout) -> None:
    given, options = arguments(name, rollout)
    ours = train.processed_logits(*given, **options).log_softmax(-1).numpy()
    theirs = rollout.reported[name]
    assert np.array_equal(np.isneginf(ours), np.isneginf(theirs))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


class Replayed:
    """A language model that gives vLLM's own logits along its own response."""

    tokenizer = thinking = None
    hf_config: dict[str, Any] = {}
    eos: frozenset[int] = frozenset()

    def __init__(self, rows: np.ndarray, prompt_len: int) -> None:
        self._rows, self._prompt_len, self.vocab_size = torch.from_numpy(rows), prompt_len, rows.shape[1]

    def logits(self, tokens: Any) -> torch.Tensor:
        return self._rows[len(tokens) - self._prompt_len]


@pytest.mark.parametrize("name", WANTED)
def test_lpkit_show_looks_at_vllms_distributions_before_and_after_the_stages(name: str, rollout: Rollout) -> None:
    (cls, _, prompt, response, raw), _ = arguments(name, rollout)
    fields = {"max_tokens": 12, "seed": 0, **WANTED[name][1]}
    model: Any = Replayed(rollout.raw[name], len(prompt))
    run = Playing(ShownRequest(rollout.runner, model, Case(fields), prompt, [Processor("plugin", cls)]), [0])
    for n, token in enumerate(response):
        _, before = run.step(token)
        after = run.seen[-1][1] if run.seen else before
        assert torch.equal(before[0], raw[n])
        ours, theirs = after[0].log_softmax(-1).numpy(), rollout.reported[name][n]
        assert np.array_equal(np.isneginf(ours), np.isneginf(theirs))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    # V2 processes nothing if no request needs it.
    called = any(isinstance(stage, Part) for stage, _ in run.seen)
    assert called == (rollout.runner == "v1" or name != "nothing")


@pytest.mark.parametrize("name", WANTED)
def test_the_log_probabilities_of_the_response_are_vllms(name: str, rollout: Rollout) -> None:
    given, options = arguments(name, rollout)
    reported = rollout.reported[name][np.arange(len(given[3])), given[3]].tolist()
    found = train.check_rollout(*given, reported, tolerance=1e-5, **options)
    assert found.agrees, found
    if name != "nothing":  # and the processing matters
        raw = given[4].log_softmax(-1)[torch.arange(len(given[3])), given[3]].tolist()
        assert not train.check_rollout(*given, raw, tolerance=1e-5, **options).agrees
