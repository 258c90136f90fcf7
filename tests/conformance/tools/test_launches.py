"""What a step asks a GPU for stays within the budget, whatever the batch, and the page says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import launches
import pytest
import torch
from lpkit import kernels
from lpkit.kernels.traffic import FUNCTIONS
from lpkit_conformance.bench.candidates import Parameters
from lpkit_conformance.bench.launches import DENSE, SPARSE, WITH_HISTORY
from lpkit_conformance.hosts import parts_of
from lpkit_conformance.hosts.steady import SteadyBatch
from lpkit_conformance.instruments.dispatch import Watch
from lpkit_conformance.instruments.meta_kernels import META, fused_on_meta
from lpkit_conformance.instruments.operations import COPIES, CountLaunches

FOUND = {name: (cls, case) for name, cls, case in launches.plugins()}


@pytest.fixture(scope="module", autouse=True)
def kernels_that_only_count() -> Iterator[None]:
    with fused_on_meta():
        yield


@pytest.mark.parametrize("batch", [1, 50])
@pytest.mark.parametrize("runner", launches.RUNNERS)
def test_a_sparse_rule_without_history_takes_a_gather_a_read_its_arithmetic_and_a_write(
    runner: str, batch: int
) -> None:
    step = launches.steady(*FOUND["lpkit-logit-bias"], runner, batch=batch)
    assert step.operations == {"index_select": 1, "add": 1}
    assert step.kernels == {"read": 1, "write": 1}
    assert step.launches == SPARSE


@pytest.mark.parametrize("batch", [1, 50])
def test_a_sparse_rule_with_history_takes_two_more(batch: int) -> None:
    step = launches.steady(*FOUND["lpkit-penalties"], "v2", batch=batch)
    assert step.operations == {"index_select": 1}
    assert step.kernels == {"history": 1, "counts": 1, "read": 1, "penalize": 1, "write": 1}
    assert step.launches == WITH_HISTORY


@pytest.mark.parametrize("runner", launches.RUNNERS)
@pytest.mark.parametrize("name", ["lpkit-target-token", "lpkit-allowed-tokens"])
def test_a_dense_rule_that_keeps_a_few_tokens_takes_a_gather_and_two_kernels(name: str, runner: str) -> None:
    step = launches.steady(*FOUND[name], runner)
    assert step.operations == {"index_select": 1}
    assert step.kernels == {"kept": 1, "keep": 1}
    assert step.launches == DENSE


CASES = [pytest.param(cls, case, id=f"{name} {n}") for n, (name, cls, case) in enumerate(launches.cases())]


@pytest.mark.parametrize(("cls", "case"), CASES)
def test_the_number_does_not_depend_on_the_batch(cls: Any, case: dict[str, Any]) -> None:
    few, many = (launches.steady(cls, case, "v2", batch=batch) for batch in (1, 50))
    assert (few.operations, few.kernels) == (many.operations, many.kernels)


@pytest.mark.parametrize("runner", launches.RUNNERS)
@pytest.mark.parametrize(("cls", "case"), CASES)
def test_rows_of_others_take_two_more_and_only_of_a_dense_rule(cls: Any, case: dict[str, Any], runner: str) -> None:
    all_of_them, half = (launches.steady(cls, case, runner, share=share) for share in (1.0, 0.5))
    assert half.launches - all_of_them.launches == (0 if cls._sparse else 2)


class BlockingCopies(Watch):
    """Notes the copies from the host to the device that are not told to go on meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in COPIES and result.device == META:
            source = args[1] if name == "copy_" else args[0]
            non_blocking = (kwargs or {}).get("non_blocking") or (name == "copy_" and args[2:] == (True,))
            if source.device.type == "cpu" and not non_blocking:
                self.seen.append(f"{name} of {tuple(source.shape)}")
        return result


@pytest.mark.parametrize("runner", launches.RUNNERS)
@pytest.mark.parametrize("name", FOUND)
def test_no_copy_to_the_device_makes_the_host_wait(name: str, runner: str) -> None:
    cls, case = FOUND[name]
    requests = SteadyBatch(8, launches.VOCAB, launches.CONTEXT, 1.0, META)
    candidate = parts_of(runner).candidate("plugin", cls, Parameters(case), META)
    for _ in range(2):
        candidate.prepare(requests, requests.change())
        with torch.inference_mode(), BlockingCopies() as copies:
            candidate.follow()
            candidate.apply(torch.zeros(8, launches.VOCAB, device=META))
        assert copies.seen == []
        requests.advance()


@pytest.mark.parametrize(("name", "kernel"), [("lpkit-greenlist-watermark", "context"), ("lpkit-xtc", "mix")])
def test_random_numbers_of_rows_are_one_launch(name: str, kernel: str) -> None:
    step = launches.steady(*FOUND[name], "v2")
    assert step.kernels[kernel] == 1
    assert not step.operations.keys() & {"bitwise_right_shift", "__xor__", "__rshift__"}


@pytest.mark.parametrize("runner", launches.RUNNERS)
def test_a_mask_relative_to_the_highest_logit_takes_a_gather_and_two_kernels(runner: str) -> None:
    step = launches.steady(*FOUND["lpkit-min-p"], runner)
    assert step.operations == {"index_select": 1}
    assert step.kernels == {"tops": 1, "mask_below_top": 1}
    assert step.launches == DENSE


@pytest.mark.parametrize("runner", launches.RUNNERS)
@pytest.mark.parametrize(
    ("name", "kernels"),
    [("lpkit-top-n-sigma", ["moments", "mask_deviating"]), ("lpkit-truncation", ["shares", "mask_unlikely"])],
)
def test_a_mask_by_a_rows_own_numbers_takes_a_gather_and_two_kernels(
    name: str, kernels: list[str], runner: str
) -> None:
    step = launches.steady(*FOUND[name], runner)
    assert step.operations == {"index_select": 1}
    assert step.kernels == dict.fromkeys(kernels, 1)
    assert step.launches == DENSE


def test_in_one_engine_rows_histories_and_columns_are_found_and_sent_once_for_all() -> None:
    chosen = [(name, *FOUND[name]) for name in ("lpkit-dry", "lpkit-no-repeat-ngram", "lpkit-penalties")]
    apart, one = (launches.together(chosen, apart) for apart in (True, False))
    assert apart["stays"] - one["stays"] == 2 * 2  # a gather of columns and a history for each but the first
    assert apart["enters"] - one["enters"] == 2 * 4  # and a copy of what was written, and one of rows and slots
    assert one["stays"] - sum(launches.steady(cls, case, "v2").launches for _, cls, case in chosen) == -4


def test_excluding_top_choices_takes_a_gather_a_coin_the_lengths_and_three_kernels() -> None:
    step = launches.steady(*FOUND["lpkit-xtc"], "v2")
    assert step.operations == {"index_select": 1, "lt": 1}
    assert step.kernels == dict.fromkeys(("history", "mix", "exponentials", "least_likely", "drop"), 1)


@pytest.mark.parametrize("runner", launches.RUNNERS)
def test_a_temperature_that_follows_the_entropy_takes_a_gather_and_two_kernels(runner: str) -> None:
    step = launches.steady(*FOUND["lpkit-temperature"], runner)
    assert step.operations == {"index_select": 1}
    assert step.kernels == {"shares": 1, "retemper": 1}
    assert step.launches == DENSE


@pytest.mark.parametrize(("rounds", "groups"), [(1, 1), (4, 1), (5, 2), (30, 8)])
def test_a_tournament_takes_a_launch_for_every_four_rounds_and_one_for_the_edit(rounds: int, groups: int) -> None:
    logits, starts = torch.zeros(4, 700, device=META), torch.zeros(4, rounds, device=META)
    with CountLaunches(META) as step:
        kernels.tournament_(logits, logits[:, :1], logits[0], starts)
    assert step.kernels == {"enter": groups, "win": 1}
    assert not step.operations


def arguments(name: str) -> tuple[Any, ...]:
    """Logits, and values that lie apart, as columns of a batch do."""
    logits, packed = torch.zeros(4, 700, device=META), torch.zeros(4, 6, device=META)
    column = packed[:, 1:2]
    if name == "keep_ids_":
        return logits, torch.zeros(4, 3, dtype=torch.int64, device=META), column > 0
    if name == "add_where_hashed_":
        numbers = packed.int()[:, 2:3]
        return logits, numbers, numbers, column
    if name == "exclude_top_choices_":
        return logits, column, column, torch.zeros(4, 3, dtype=torch.int64, device=META), column > 0
    if name == "mask_deviations_below_top_":
        return logits, packed.double()[:, 1:2]
    if name in ("dynamic_temperature_", "mask_unlikely_"):
        return logits, *(column,) * (6 if name == "dynamic_temperature_" else 4)
    return (logits,) if name == "top_and_deviation" else (logits, column)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_model_of_traffic_names_the_kernels_that_a_function_launches(name: str) -> None:
    given = arguments(name)
    with CountLaunches(META) as step:
        getattr(kernels, name)(*given)
    assert tuple(step.kernels) == FUNCTIONS[name]
    if name != "least_from":
        assert not step.operations, "values of a row are read where they lie"


def test_v1_needs_two_more_to_stage_the_new_tokens() -> None:
    step = launches.steady(*FOUND["lpkit-penalties"], "v1")
    assert step.operations == {"index_select": 1, "to": 1, "index_put_": 1}
    assert step.launches == WITH_HISTORY + 2


def test_the_page_shows_what_is_counted_and_says_why_a_plugin_is_above_its_budget() -> None:
    page = (launches.ROOT / "docs" / "evidence" / "launches.md").read_text(encoding="utf-8")
    assert launches.page() == page, "make launches"
