"""SGLang's own classes drive exported plugins: its batches, its apply function and its plugin registry, on the CPU.

The engine itself needs a GPU. What it would do around these classes is played here: overlap scheduling, batches that
are filtered and merged, prompts in pieces.
"""

from __future__ import annotations

import importlib.metadata
import sys
from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import lpkit.export
import pytest
import torch
from lpkit.export import for_sglang
from lpkit_allowed_tokens import AllowedTokens
from lpkit_min_p import MinP
from lpkit_penalties import Penalties
from sglang_wheel import (
    RUNNER,
    HookRegistry,
    Sampler,
    SamplingParams,
    batches,
    plugins,
    runtime_context,
)

pytestmark = pytest.mark.engines

VOCAB = 50
RULE = {"penalties_repetition": 1.5, "penalties_frequency": 0.5}


class Runner:
    """Stands for SGLang's ``ModelRunner``, whose module needs CUDA: its sampler is the wheel's."""

    def sample(self, logits_output: Any, forward_batch: Any) -> torch.Tensor:
        logits = Sampler._preprocess_logits(
            SimpleNamespace(), logits_output.next_token_logits, forward_batch.sampling_info
        )
        return logits.argmax(-1)


class Request:
    """The attributes that SGLang's ``Req`` shows."""

    def __init__(self, name: str, prompt: list[int], custom: dict[str, Any] | None = None):
        self.rid, self.origin_input_ids, self.output_ids = name, array("q", prompt), array("q")
        params = SamplingParams(max_new_tokens=40, temperature=1.0, custom_params=custom)
        params.normalize(None)
        self.sampling_params, self.custom_logit_processor = params, None
        self.return_sampling_mask, self.sampling_logprobs_mode = False, None
        self.grammar = None


class Config:
    """Any setting, off."""

    speculative_algorithm = None

    def __getattr__(self, name: str) -> Any:
        return Config() if name in ("deterministic", "features") else False


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """SGLang's process with the plugins of this environment, as its own loader starts them."""

    config = Config()
    monkeypatch.setattr(batches, "get_exec", lambda: config)
    monkeypatch.setattr(runtime_context, "get_server_args", lambda: config)
    runner = sys.modules[RUNNER]
    monkeypatch.setattr(runner, "ModelRunner", Runner, raising=False)
    found = [
        importlib.metadata.EntryPoint(cls.__name__, f"{__name__}:{cls.__name__}", "sglang.srt.plugins")
        for cls in (Penalties, MinP, AllowedTokens)
    ]
    here = {cls.__name__: lpkit.export.sglang_plugin(cls) for cls in (Penalties, MinP, AllowedTokens)}
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: here[self.name])
    monkeypatch.setattr(plugins, "entry_points", lambda group: found if group == "sglang.srt.plugins" else [])
    monkeypatch.setattr(plugins, "_plugins_loaded", False)
    monkeypatch.setattr(for_sglang, "_SERVED", {})
    kept = (Runner.sample, batches.SamplingBatchInfo.__dict__["from_schedule_batch"], SamplingParams.verify)
    plugins.load_plugins()
    yield config
    HookRegistry.reset()
    Runner.sample, batches.SamplingBatchInfo.from_schedule_batch, SamplingParams.verify = kept


class Schedule(SimpleNamespace):
    """The attributes that SGLang's ``ScheduleBatch`` shows; the engine keeps weak references to it."""


def batch_of(requests: list[Request]) -> Any:
    return batches.SamplingBatchInfo.from_schedule_batch(Schedule(reqs=requests, device="cpu"), VOCAB)


def forward(requests: list[Request], info: Any, newest: dict[str, int], lag: bool) -> Any:
    """The forward batch of a decode step: with overlap the newest tokens are on the device only."""
    lengths = [
        len(one.origin_input_ids) + len(one.output_ids) + (1 if lag and one.rid in newest else 0) for one in requests
    ]
    ids = torch.tensor([newest.get(one.rid, one.origin_input_ids[-1]) for one in requests])
    return SimpleNamespace(
        sampling_info=info,
        rids=[one.rid for one in requests],
        seq_lens_cpu=torch.tensor(lengths),
        seq_lens=torch.tensor(lengths),
        input_ids=ids,
        forward_mode=SimpleNamespace(is_decode=lambda: True),
    )


def model(request: Request, outputs: list[int]) -> torch.Tensor:
    seed = sum((i + 1) * t for i, t in enumerate([*request.origin_input_ids, *outputs])) + 1
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


def penalized(row: torch.Tensor, request: Request, outputs: list[int]) -> torch.Tensor:
    if not {"penalties_repetition", "repetition"} & set(request.sampling_params.custom_params or ()):
        return row
    seen = torch.zeros(VOCAB, dtype=torch.bool)
    seen[[*request.origin_input_ids, *outputs]] = True
    row = torch.where(seen, torch.where(row > 0, row / 1.5, row * 1.5), row)
    return row - 0.5 * torch.bincount(torch.tensor(outputs, dtype=torch.int64), minlength=VOCAB)


def play(requests: list[Request], *, overlap: bool, steps: int = 30) -> dict[str, list[int]]:
    """Decode greedily; each step compares the sampler's choice with the rule in plain torch."""
    runner = Runner()
    history: dict[str, list[int]] = {one.rid: [] for one in requests}
    newest: dict[str, int] = {}
    running, info = list(requests[:2]), batch_of(requests[:2])
    for step in range(steps):
        if step == 5:
            info.merge_batch(batch_of(requests[2:]))
            running += requests[2:]
        if step == 20:
            info.filter_batch([0, 2], torch.tensor([0, 2]))
            running = [running[0], running[2]]
        logits = torch.stack([model(one, history[one.rid]) for one in running])
        expected = torch.stack(
            [penalized(row, one, history[one.rid]) for row, one in zip(logits, running, strict=True)]
        )
        output = SimpleNamespace(next_token_logits=logits.clone())
        tokens = runner.sample(output, forward(running, info.copy_for_forward(), newest, overlap))
        torch.testing.assert_close(output.next_token_logits, expected)
        assert torch.equal(tokens, expected.argmax(-1))
        for one, token in zip(running, tokens.tolist(), strict=True):
            if overlap and one.rid in newest:
                one.output_ids.append(newest[one.rid])
            history[one.rid].append(token)
            if overlap:
                newest[one.rid] = token
            else:
                one.output_ids.append(token)
    return history


def requests() -> list[Request]:
    return [
        Request("a", [1, 2, 3], dict(RULE)),
        Request("b", [1, 2, 3], {"unrelated": 1}),
        Request("c", [4, 5], dict(RULE)),
        Request("d", [1, 2, 3]),
    ]


@pytest.mark.parametrize("overlap", [False, True], ids=["in-turn", "overlap"])
def test_installed_plugins_act_in_the_engines_own_batches(server: Any, overlap: bool) -> None:
    history = play(requests(), overlap=overlap)
    assert len(history["a"]) == 30
    assert len(set(history["a"])) > 10


def test_overlap_scheduling_changes_no_token(server: Any) -> None:
    assert play(requests(), overlap=True) == play(requests(), overlap=False)


def test_requests_that_use_no_plugin_leave_the_batch_as_it_was(server: Any) -> None:
    for_sglang._SERVED.pop(Penalties)  # without required arguments it would be called for every request
    info = batch_of([Request("a", [1]), Request("b", [2], {"unrelated": 1})])
    assert info.has_custom_logit_processor is False
    assert info.custom_params is None


def test_rows_of_an_unfinished_prompt_are_left_alone(server: Any) -> None:
    request = Request("a", [1, 2, 3, 4], dict(RULE))
    batch = forward([request], batch_of([request]), {}, False)
    batch.seq_lens_cpu = torch.tensor([2])
    logits = torch.randn(1, VOCAB)
    output = SimpleNamespace(next_token_logits=logits.clone())
    Runner().sample(output, batch)
    assert torch.equal(output.next_token_logits, logits)


def verify(custom: dict[str, Any], **more: Any) -> None:
    params = SamplingParams(max_new_tokens=4, custom_params=custom, **more)
    params.normalize(None)
    params.verify(VOCAB)


@pytest.mark.parametrize(
    ("custom", "message"),
    [
        ({"penalties_repetitoin": 1.5}, "did you mean 'penalties_repetition'"),
        ({"penalties_repetition": -1}, "penalties_repetition"),
        ({"allowed_tokens": [3, VOCAB]}, "50"),
    ],
)
def test_wrong_arguments_are_refused_before_the_request_is_scheduled(
    server: Any, custom: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        verify(custom)


def test_valid_arguments_and_those_of_others_pass(server: Any) -> None:
    verify(dict(RULE))
    verify({"unrelated": 1})
    verify({})


def test_requests_are_refused_where_the_engine_hides_draft_tokens(server: Any) -> None:
    server.speculative_algorithm = "EAGLE"
    verify({"unrelated": 1})
    with pytest.raises(ValueError, match=r"decodes speculatively \(EAGLE\)"):
        verify(dict(RULE))


def test_requests_with_beams_are_refused(server: Any) -> None:
    with pytest.raises(ValueError, match="cannot run with beams"):
        verify(dict(RULE), beam_width=2)
