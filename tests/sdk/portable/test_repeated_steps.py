"""A repeated step gives the bits of the author's code, and a defect in any part of the repetition does not.

Torch's operations take the kernels' place, and columns lie in memory of their own, as on a GPU.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import lpkit
import pytest
import torch
from lpkit.history.reading import SHORTEST
from lpkit.portable.by_slot import BySlot
from lpkit.rules.no_repeat_ngram import NoRepeatNgram
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.instruments.recorded_steps import recording
from own_edits import OWN_EDITS, OWN_PROCESSES
from recording_defects import DEFECTS, Far, columns_have_one_number, values_stay

CPU, VOCAB = torch.device("cpu"), 64


def made(repeated: bool) -> Far:
    with recording() if repeated else nullcontext():
        return Far(make_config(max_num_seqs=4, vocab_size=VOCAB), CPU, False)


def request(row: int, **args: Any) -> tuple[int, SamplingParams, list[int], list[int]]:
    return row, SamplingParams(temperature=0.5 + row / 2, extra_args=args), [1], []


BATCHES: list[tuple[int, list[int], list[Any]]] = [
    (2, [], [request(0, far=1.0), request(1)]),
    (2, [], []),
    (3, [], [request(2, far=0.5)]),
    (3, [0], [request(0, far=2.0, ids=list(range(9)))]),  # recycles a slot, takes the other branch, moves the memory
    (3, [1], [request(1, far=0.25, ids=list(range(40)))]),  # moves it again
    (2, [2], []),
    (2, [0], [request(0, far=3.0)]),  # the first branch again
]
"""Rows, removed rows, and new requests of each step."""


def play() -> None:
    """Compare the two ways in all steps, with new logits in each."""
    pair, generator = [made(False), made(True)], torch.Generator().manual_seed(1)
    for rows, removed, added in BATCHES:
        for _ in range(2):
            logits = torch.randn(rows, VOCAB, generator=generator)
            found = []
            for processor in pair:
                processor.update_state(lpkit.v1.BatchUpdate(rows, removed, added, []))
                found.append(processor.apply(logits.clone()))
            assert torch.equal(*found)
            removed, added = [], []
    step = pair[1]._by_slot
    assert step is not None and step._plans


def test_a_repeated_step_edits_as_the_authors_code_does() -> None:
    play()


def play_own(cls: type[lpkit.LogitsProcessor], runs: int = 3) -> None:
    """Compare the two ways on requests that come and grow, with another one between them."""
    pair = []
    for repeated in (nullcontext(), recording()):
        with repeated:
            pair.append(cls(make_config(max_num_seqs=4, vocab_size=VOCAB), CPU, False))
    generator, outputs = torch.Generator().manual_seed(2), [[5, 6, 5], [], [7, 7]]
    asked: list[dict[str, Any]] = [
        {"ids": [3, 7, 3, VOCAB + 1], "values": [0.5, -1.0, 0.5, 2.0]},
        {},
        {"ids": [9], "values": [3.0], "token": 6},
    ]
    if cls in OWN_PROCESSES.values():
        asked = [{"share": 0.2}, {}, {"share": 0.6, "factor": 0.7, "count": 1}]
    added = [(*request(row, **asked[row])[:3], output) for row, output in enumerate(outputs)]
    for _ in range(runs):
        logits = torch.randn(3, VOCAB, generator=generator)
        logits[0, 3], logits[2, 9] = float("nan"), -float("inf")
        found = []
        for processor in pair:
            processor.update_state(lpkit.v1.BatchUpdate(3, [], added, []) if added else None)
            found.append(processor.apply(logits.clone()))
        assert torch.equal(*(item.view(torch.int32) for item in found))
        assert not torch.equal(found[0].view(torch.int32), logits.view(torch.int32))
        added = []
        for output in outputs:
            output.append(5)
    step = pair[1]._by_slot
    assert step is not None and step._plans, step and step.reason


def test_a_launch_that_fails_leaves_the_step_to_its_python(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with recording():
        processor = OWN_PROCESSES["Cools"](make_config(max_num_seqs=4, vocab_size=VOCAB), CPU, False)

    def refuse(*_: Any) -> None:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(BySlot, "_launch", refuse)
    processor.update_state(lpkit.v1.BatchUpdate(1, [], [request(0, share=0.2)], []))
    assert (processor.apply(torch.ones(1, VOCAB)) != 1).all()
    assert "Cools: its kernel could not be launched" in caplog.text


@pytest.mark.parametrize("name", [*OWN_EDITS, *OWN_PROCESSES])
def test_an_authors_own_step_is_repeated_as_it_is_written(name: str) -> None:
    play_own({**OWN_EDITS, **OWN_PROCESSES}[name])


@pytest.mark.parametrize(
    ("defect", "cls"), [(columns_have_one_number, OWN_EDITS["Multiplies"]), (values_stay, OWN_PROCESSES["MinP"])]
)
def test_a_defect_of_an_own_step_is_noticed(
    defect: Any, cls: type[lpkit.LogitsProcessor], monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        play_own(cls)


def test_plans_end_with_the_memory_of_the_histories() -> None:
    with recording():
        processor = NoRepeatNgram(make_config(max_num_seqs=2, vocab_size=VOCAB), CPU, False)
    output = [1] * (SHORTEST - 4)
    asks = SamplingParams(extra_args={"size": 2})
    processor.update_state(lpkit.v1.BatchUpdate(1, [], [(0, asks, [1], output)], []))
    for _ in range(8):
        processor.apply(torch.zeros(1, VOCAB))
        output.append(1)
    assert processor._by_slot is not None
    assert len(processor._by_slot._plans) == 1


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_repetition_is_noticed(defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        play()
