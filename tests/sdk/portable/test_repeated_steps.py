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
from lpkit.rules.no_repeat_ngram import NoRepeatNgram
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.instruments.recorded_steps import recording
from recording_defects import DEFECTS, Far

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
