"""The contract of TensorRT-LLM 1.2, from its published signatures:

``LogitsProcessor.__call__(req_id, logits, token_ids, stream_ptr, client_id) -> None`` and
``BatchedLogitsProcessor.__call__(req_ids, logits, token_ids, stream_ptr, client_ids) -> None``: in place, tokens are
prompt and outputs per beam, and nothing says that a request ended. The engine itself needs a GPU and was not run.
"""

from __future__ import annotations

import inspect
import pickle
import random
from collections.abc import Callable
from typing import Any

import lpkit.export
import pytest
import torch
from exported_rules import VOCAB, Allowed, Counts, counted
from lpkit.export import for_tensorrt_llm

Engine = Callable[[list[int], list[torch.Tensor], list[list[list[int]]]], None]


def single(**fields: Any) -> Engine:
    one = lpkit.export.tensorrt_llm(Counts, overlap=False, **fields)

    def call(names: list[int], logits: list[torch.Tensor], tokens: list[list[list[int]]]) -> None:
        for name, own, ids in zip(names, logits, tokens, strict=True):
            assert one(name, own, ids, None, None) is None

    return call


def batched(**fields: Any) -> Engine:
    one = lpkit.export.tensorrt_llm_batched(Counts, overlap=False, **fields)

    def call(names: list[int], logits: list[torch.Tensor], tokens: list[list[list[int]]]) -> None:
        assert one(names, logits, tokens, None, [None] * len(names)) is None

    return call


BOTH = pytest.mark.parametrize("export", [single, batched])


def test_the_arguments_are_those_that_were_published() -> None:
    assert list(inspect.signature(lpkit.export.tensorrt_llm(Allowed, ids=[1])).parameters) == [
        "req_id",
        "logits",
        "token_ids",
        "stream_ptr",
        "client_id",
    ]
    assert list(inspect.signature(lpkit.export.tensorrt_llm_batched(Allowed, ids=[1])).parameters) == [
        "req_ids",
        "logits",
        "token_ids",
        "stream_ptr",
        "client_ids",
    ]


@BOTH
@pytest.mark.parametrize("beams", [1, 3])
def test_requests_come_and_go_and_beams_are_copied(export: Callable[..., Engine], beams: int) -> None:
    draw = random.Random(beams)
    call = export(strength=1.5)
    running: dict[int, tuple[list[int], list[list[int]]]] = {}
    for step in range(40):
        for name in [name for name in running if draw.random() < 0.1]:
            del running[name]
        for _ in range(draw.randint(0, 2)):
            running[draw.randrange(6)] = ([draw.randrange(VOCAB) for _ in range(draw.randint(1, 4))], [[]] * beams)
        if not running:
            continue
        noise = torch.Generator().manual_seed(step)
        logits = [torch.randn(1, beams, VOCAB, generator=noise) for _ in running]
        wanted = [
            torch.stack([counted(row, outputs, 1.5) for row, outputs in zip(own[0], beam_outputs, strict=True)])
            for own, (_, beam_outputs) in zip(logits, running.values(), strict=True)
        ]
        call(list(running), logits, [[prompt + out for out in outputs] for prompt, outputs in running.values()])
        for own, expected in zip(logits, wanted, strict=True):
            torch.testing.assert_close(own[0], expected)
        for name, (prompt, outputs) in running.items():
            parents = [draw.randrange(beams) for _ in range(beams)]
            running[name] = (prompt, [[*outputs[parent], draw.randrange(VOCAB)] for parent in parents])


@BOTH
def test_half_precision_is_edited_in_place(export: Callable[..., Engine]) -> None:
    call = export(strength=4.0)
    call([1], [torch.zeros(1, 1, VOCAB, dtype=torch.float16)], [[[5]]])
    logits = torch.zeros(1, 1, VOCAB, dtype=torch.float16)
    call([1], [logits], [[[5, 7]]])
    assert logits[0, 0, 7] == -4.0
    assert logits.count_nonzero() == 1


def test_what_is_remembered_of_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(for_tensorrt_llm, "_MOST", 16)
    one = lpkit.export.tensorrt_llm(Counts, strength=1.0, overlap=False)
    for name in range(100):
        one(name, torch.zeros(1, 1, VOCAB), [[1, 2]], None, None)
    assert len(one._requests._known) == 16


def test_a_processor_travels_to_the_engines_processes() -> None:
    one = pickle.loads(pickle.dumps(lpkit.export.tensorrt_llm(Allowed, ids=[3])))
    logits = torch.zeros(1, 1, VOCAB)
    one(1, logits, [[1]], None, None)
    assert torch.isfinite(logits).nonzero().tolist() == [[0, 0, 3]]


def test_a_rule_on_the_history_is_refused_where_overlap_hides_a_token() -> None:
    with pytest.raises(TypeError, match="disable_overlap_scheduler=True"):
        lpkit.export.tensorrt_llm(Counts, strength=1.0)
    with pytest.raises(TypeError, match="disable_overlap_scheduler=True"):
        lpkit.export.tensorrt_llm_batched(Counts, strength=1.0)


def test_an_unknown_parameter_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'strength'\?"):
        lpkit.export.tensorrt_llm(Counts, strenght=1.0, overlap=False)


def test_a_token_beyond_the_vocabulary_leaves_the_logits_alone(caplog: pytest.LogCaptureFixture) -> None:
    one = lpkit.export.tensorrt_llm(Allowed, ids=[VOCAB])
    logits = torch.zeros(1, 1, VOCAB)
    one(1, logits, [[1]], None, None)
    assert not logits.any()
    assert str(VOCAB) in caplog.text
