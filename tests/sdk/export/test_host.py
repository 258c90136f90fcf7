"""The host behind exports follows rows without reports of arrivals, departures or moves."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from exported_rules import VOCAB, Counts, counted
from lpkit import v1
from lpkit.export.host import ExportHost, follow, sampling_params
from lpkit.history.on_host import V1Row
from lpkit.sampling_params import SamplingParams


def expected(logits: torch.Tensor, row: V1Row) -> torch.Tensor:
    args = row.params.extra_args
    return counted(logits, row.output_ids, next(iter(args.values()))) if args else logits


@pytest.mark.parametrize("seed", range(3))
def test_rows_may_come_go_and_change_places_in_every_step(seed: int) -> None:
    draw = random.Random(seed)
    host = ExportHost(Counts, VOCAB, torch.device("cpu"))
    given = ({"strength": 1.5}, {"counts_strength": 2.0}, {})
    kinds = [sampling_params(Counts, item, optional=True) for item in given]
    rows: list[V1Row] = []
    for step in range(40):
        rows = [row for row in rows if draw.random() < 0.85]
        rows += [V1Row(draw.choice(kinds), [1, 2], []) for _ in range(draw.randint(0, 3))]
        draw.shuffle(rows)
        logits = torch.randn(len(rows), VOCAB, generator=torch.Generator().manual_seed(step))
        kept = logits.clone()
        edited = host.process(logits, rows)
        assert torch.equal(logits, kept)
        for i, row in enumerate(rows):
            torch.testing.assert_close(edited[i], expected(logits[i], row))
            row.output_ids.append(draw.randrange(VOCAB))


def test_two_threads_in_one_object_are_refused() -> None:
    started, go_on = threading.Event(), threading.Event()

    class Slow(Counts):
        def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
            started.set()
            go_on.wait(10)
            return super().apply(logits, ctx)

    host = ExportHost(Slow, VOCAB, torch.device("cpu"))
    rows = [V1Row(sampling_params(Slow, {"strength": 1.5}), [1], [])]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(host.process, torch.zeros(1, VOCAB), rows)
        assert started.wait(10)
        with pytest.raises(RuntimeError, match="two threads use the same exported"):
            host.process(torch.zeros(1, VOCAB), rows)
        go_on.set()
        assert first.result().shape == (1, VOCAB)


def test_a_row_that_shows_more_of_the_same_tokens_is_the_same_request() -> None:
    params = sampling_params(Counts, {"strength": 1.0})
    row = follow(None, params, [1], [])
    assert follow(row, params, [1], [5]) is row
    assert row.output_ids == [5]


@pytest.mark.parametrize(("prompt", "output"), [([1], [6, 7]), ([1], []), ([2], [5, 6])])
def test_a_row_that_shows_other_tokens_is_another_request(prompt: list[int], output: list[int]) -> None:
    params = sampling_params(Counts, {"strength": 1.0})
    row = follow(None, params, [1], [5])
    other = follow(row, params, prompt, output)
    assert other is not row
    assert (other.prompt_ids, other.output_ids) == (prompt, output)


def test_an_unknown_argument_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no parameter 'strenght'; did you mean 'strength'\?"):
        sampling_params(Counts, {"strenght": 1.0})


def test_an_argument_given_by_key_and_by_field_is_refused() -> None:
    with pytest.raises(ValueError, match="counts_strength is given twice"):
        sampling_params(Counts, {"strength": 1.0, "counts_strength": 1.0})


def test_an_argument_that_breaks_a_rule_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="counts_strength"):
        sampling_params(Counts, {"strength": "much"})


def test_arguments_that_were_forgotten_are_named() -> None:
    with pytest.raises(ValueError, match="Counts needs strength"):
        sampling_params(Counts, {})


@pytest.mark.parametrize("temperature", [0, 1e-6, 0.5, 3.0])
def test_other_engines_temperatures_are_taken_as_they_are(temperature: float) -> None:
    assert sampling_params(Counts, {"strength": 1.0}, temperature).temperature == temperature


@pytest.mark.parametrize("temperature", [-1.0, float("inf"), float("nan")])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be finite"):
        sampling_params(Counts, {"strength": 1.0}, temperature)


def test_logits_of_half_precision_come_back_in_it() -> None:
    host = ExportHost(Counts, VOCAB, torch.device("cpu"))
    row = V1Row(sampling_params(Counts, {"strength": 1.0}), [1], [3])
    logits = torch.randn(1, VOCAB).to(torch.bfloat16)
    edited = host.process(logits, [row])
    assert edited.dtype == torch.bfloat16
    assert torch.equal(edited[0, :3], logits[0, :3])
    assert edited[0, 3] < logits[0, 3]


def test_a_row_that_grows_by_several_tokens_comes_back_as_resumed() -> None:
    params = sampling_params(Counts, {"strength": 1.0})
    row = follow(None, params, [1], [5])
    other = follow(row, params, [1], [5, 6, 7])
    assert other is not row
    assert other.output_ids == [5, 6, 7]


def test_a_text_longer_than_the_processor_was_told_has_it_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpkit.export.host._LONGEST", 4)
    host = ExportHost(Sized, VOCAB, torch.device("cpu"))
    row = V1Row(sampling_params(Sized, {}), [1, 2], [])
    for length in range(20):
        assert host.process(torch.zeros(1, VOCAB), [row])[0, 0] == length
        row.output_ids.append(3)


class Sized(v1.LogitsProcessor):
    """A V1 class whose table ends at ``max_model_len``: writes the number of generated tokens into column 0."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.table = list(range(vllm_config.model_config.max_model_len))
        self.outputs: list[list[int]] = []

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        for _, _, _, output in batch_update.added if batch_update else ():
            self.outputs = [output]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits[:, 0] = self.table[len(self.outputs[0])]
        return logits


class Invariant(Sized):
    """Claims to leave the likeliest token, and doubles the logits."""

    def is_argmax_invariant(self) -> bool:
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits * 2 + 1


def test_a_greedy_row_keeps_its_logits_beside_a_sampled_one_of_the_sampling_stage() -> None:
    host = ExportHost(Invariant, VOCAB, torch.device("cpu"))
    rows = [V1Row(SamplingParams(temperature=value), [1], []) for value in (0.0, 0.5)]
    logits = torch.randn(2, VOCAB)
    edited = host.process(logits, rows)
    assert torch.equal(edited[0], logits[0])
    torch.testing.assert_close(edited[1], (logits[1] / 0.5 * 2 + 1) * 0.5)


def test_a_row_without_arguments_is_not_shown_to_the_processor() -> None:
    host = ExportHost(Invariant, VOCAB, torch.device("cpu"))
    rows = [V1Row(params, [1], []) for params in (None, SamplingParams(temperature=1.0), None)]
    logits = torch.randn(3, VOCAB)
    edited = host.process(logits, rows)
    assert torch.equal(edited[::2], logits[::2])
    torch.testing.assert_close(edited[1], logits[1] * 2 + 1)


class Abstract(v1.LogitsProcessor):
    pass


@pytest.mark.parametrize(
    ("cls", "reason"), [(Abstract, "is abstract: it has no"), (dict, "no V1 interface"), (len, "a class is exported")]
)
def test_what_no_host_can_drive_is_refused_with_the_reason(cls: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        sampling_params(cls, {})
