"""Launches of a step of each reference plugin: within the budget, at any batch size.

The plugins run on torch's meta device, where a stand-in for Triton counts the kernels. Views and new memory launch
nothing; a copy between host and device counts as a launch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lpkit
import pytest
import torch
from known_launches import LAUNCHES
from lpkit import kernels
from lpkit.loading import resolve_target
from lpkit_conformance.bench.candidates import Parameters
from lpkit_conformance.bench.launches import budget, launches
from lpkit_conformance.hosts import parts_of
from lpkit_conformance.hosts.steady import SteadyBatch
from lpkit_conformance.instruments import edits
from lpkit_conformance.instruments.meta_kernels import META, fused_on_meta
from lpkit_conformance.instruments.operations import CountLaunches
from lpkit_conformance.instruments.waits import NoteSends
from lpkit_conformance.settings import project
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.vllm_api.stub import buffers_on

PLUGINS = Path(__file__).resolve().parents[3] / "reference_plugins"
RUNNERS = ("v1", "v2")
BATCH, VOCAB, CONTEXT = 8, 1000, 100

Plugin = tuple[str, Any, dict[str, Any]]
"""Name, class, a case."""


def steady(
    cls: Any, case: dict[str, Any], runner: str, device: torch.device = META, batch: int = BATCH, share: float = 1.0
) -> CountLaunches:
    """Launches of a steady step, in which no request comes or leaves; ``share`` of the requests use the plugin."""
    requests = SteadyBatch(batch, VOCAB, CONTEXT, share, device)
    candidate = parts_of(runner).candidate("plugin", cls, Parameters(case), device)
    with buffers_on(device):
        candidate.prepare(requests, requests.change())
        candidate.follow()
        logits = torch.zeros(batch, VOCAB, device=device)
        for _ in range(2):
            found = launches(candidate, requests, logits)
            requests.advance()
    return found


def cases() -> Iterator[Plugin]:
    """Each case of each reference plugin."""
    for folder in sorted(PLUGINS.glob("lpkit-*")):
        found = project.find(folder)
        assert found is not None
        sys.path.insert(0, str(folder / "src"))
        for target in found.entry_points.values():
            cls = resolve_target(target)
            yield from ((folder.name, cls, Case.parse(case).fields) for case in found.cases)


CASES = list(cases())
FOUND = {name: (cls, case) for name, cls, case in reversed(CASES)}
"""Each plugin with its first case."""

EACH_CASE = [pytest.param(cls, case, id=f"{name} {n}") for n, (name, cls, case) in enumerate(CASES)]
OF_A_RULE = [item for item in EACH_CASE if issubclass(item.values[0], lpkit.LogitsProcessor)]
"""Those of one rule; a chain takes what its rules take."""


@pytest.fixture(scope="module", autouse=True)
def kernels_that_only_count() -> Iterator[None]:
    with fused_on_meta():
        yield


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_rule_of_lpkit_new_keeps_its_budget(runner: str, tmp_path: Path) -> None:
    rule = (PLUGINS.parent / "template/templates/processor/processor.py").read_text(encoding="utf-8")
    file = tmp_path / "processor.py"
    file.write_text(rule.replace("{{ cookiecutter.class_name }}", "WrapUp"), encoding="utf-8")
    cls = resolve_target(f"{file}:WrapUp")
    assert steady(cls, {"extra_args": {"wrap_up_token": 7}}, runner).launches <= (budget(cls, runner) or 0)


@pytest.mark.parametrize(("cls", "case"), EACH_CASE)
def test_the_number_does_not_depend_on_the_batch(cls: Any, case: dict[str, Any]) -> None:
    few, many = (steady(cls, case, "v2", batch=batch) for batch in (1, 50))
    assert (few.operations, few.kernels) == (many.operations, many.kernels)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(("cls", "case"), OF_A_RULE)
def test_rows_of_others_take_two_more_of_a_dense_rule_that_is_not_taken_by_slot(
    cls: Any, case: dict[str, Any], runner: str
) -> None:
    all_of_them, half = (steady(cls, case, runner, share=share) for share in (1.0, 0.5))
    by_slot = "index_select" not in all_of_them.operations  # no columns are gathered
    assert half.launches - all_of_them.launches == (0 if cls._sparse or by_slot else 2)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(("cls", "case"), EACH_CASE)
def test_no_copy_to_the_device_makes_the_host_wait_when_requests_arrive_or_stay(
    cls: Any, case: dict[str, Any], runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is noted are lines of authors; here the SDK's lines count, too.
    own = tuple(str(PLUGINS.parent / name) for name in ("sdk", PLUGINS.name))
    monkeypatch.setattr(edits, "is_authors", lambda file: file.startswith(own))
    requests = SteadyBatch(8, VOCAB, CONTEXT, 1.0, META)
    candidate = parts_of(runner).candidate("plugin", cls, Parameters(case), META)
    for change in (requests.change, requests.change, requests.no_change):
        candidate.prepare(requests, change())
        with torch.inference_mode(), NoteSends() as sends:
            candidate.follow()
            candidate.apply(torch.zeros(8, VOCAB, device=META))
        assert sends.waits == []
        requests.advance()


@pytest.mark.parametrize(("rounds", "groups"), [(1, 1), (4, 1), (5, 2), (30, 8)])
def test_a_tournament_takes_a_launch_for_every_four_rounds_and_one_for_the_edit(rounds: int, groups: int) -> None:
    logits, shifts = torch.zeros(4, 700, device=META), torch.zeros(4, rounds, device=META)
    seeds = torch.zeros(4, 1, device=META)
    for _ in range(2):  # the first call makes what later calls share
        with CountLaunches(META) as step:
            kernels.tournament_(logits, logits[:, :1], logits[0], seeds, shifts)
    assert step.kernels == {"meet": groups + 1}
    assert not step.operations


FUNCTIONS = {
    "mask_far_below_top_": ["statistics", "mask_by_limit"],
    "dynamic_temperature_": ["statistics", "retemper"],
    "mask_deviations_below_top_": ["statistics", "mask_by_limit"],
    "mask_unlikely_": ["statistics", "mask_by_limit"],
    "exclude_top_choices_": ["statistics", "exclude"],
    "add_where_hashed_": ["add_hashed"],
    "keep_ids_": ["kept", "keep"],
}
"""The kernels that each function launches."""


def arguments(name: str) -> tuple[Any, ...]:
    """Logits, and values that are not contiguous, like columns of a batch."""
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
    return logits, column


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_launches_its_kernels_and_no_operation(name: str) -> None:
    given = arguments(name)
    getattr(kernels, name)(*given)  # the first call makes constants
    with CountLaunches(META) as step:
        getattr(kernels, name)(*given)
    assert list(step.kernels) == FUNCTIONS[name]
    assert not step.operations, "values of a row are read where they lie"


@pytest.mark.parametrize("name", [name for name, (cls, _) in FOUND.items() if budget(cls) is not None])
def test_a_plugin_takes_the_launches_that_are_known_or_keeps_its_budget(name: str) -> None:
    of_it = [(cls, case) for plugin, cls, case in CASES if plugin == name]
    counts = {tuple(steady(cls, case, runner).launches for runner in RUNNERS) for cls, case in of_it}
    if name in LAUNCHES:
        assert counts == {*LAUNCHES[name]}
        return
    for cls, case in of_it:
        allowed = budget(cls)
        assert allowed is not None
        found = steady(cls, case, "v2").launches
        assert found <= allowed, f"{found} launches on V2: use fewer, or list them in tests/helpers/known_launches.py"
