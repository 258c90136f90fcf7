"""A repeated step gives the bits of the author's code, and a defect in any part of the repetition does not.

Torch's operations take the kernels' place, and columns lie in memory of their own, as on a GPU.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import lpkit
import pytest
import torch
from lpkit import kernels
from lpkit.columns.memory import Arena
from lpkit.history.reading import SHORTEST
from lpkit.kernels.launching import LaunchPlan
from lpkit.portable import by_slot
from lpkit.portable.by_slot import BySlot
from lpkit.rules.no_repeat_ngram import NoRepeatNgram
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.instruments.recorded_steps import recording
from recording_defects import nobody_is_asked_for

CPU, VOCAB = torch.device("cpu"), 16


class Far(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        far: float
        ids: tuple[int, ...] = ()

    far = lpkit.column(torch.float32)
    ids = lpkit.ragged(torch.int64)  # grows, and moves the memory of all columns

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if self.ids.used:
            kernels.mask_far_below_top_(logits, self.far[rows].unsqueeze(1), rows.temperature)
        return kernels.mask_far_below_top_(logits, self.far[rows].unsqueeze(1))


def made(repeated: bool) -> Far:
    if not repeated:
        return Far(make_config(max_num_seqs=4, vocab_size=VOCAB), CPU, False)
    with recording():
        processor = Far(make_config(max_num_seqs=4, vocab_size=VOCAB), CPU, False)
    processor._admission.arena._on_host = False
    processor._admission.arena.lay_out()
    processor._admission.flush()
    return processor


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


def same_addresses(patch: pytest.MonkeyPatch) -> None:
    run, first = LaunchPlan.run, {}  # type: ignore[var-annotated]
    patch.setattr(LaunchPlan, "run", lambda self, *given: run(self, *first.setdefault(id(self), given)))


def plans_live_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(by_slot, "memory_of", lambda column: ())


def only_new_memory_is_sent(patch: pytest.MonkeyPatch) -> None:
    """Neither values nor who is admitted."""
    send = Arena._send
    patch.setattr(Arena, "_send", lambda self: send(self) if self._moved else None)


def a_branch_stays_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BySlot, "_record", cache(BySlot._record))


DEFECTS = [same_addresses, plans_live_on, only_new_memory_is_sent, a_branch_stays_recorded, nobody_is_asked_for]


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_repetition_is_noticed(defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        play()
