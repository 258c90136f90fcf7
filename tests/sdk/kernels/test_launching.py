"""Launches that are repeated: with new addresses of some tensors, and by the driver as by Triton."""

from __future__ import annotations

import ctypes
import weakref
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lpkit.kernels import launching
from lpkit.kernels.launching import LaunchPlan, by_triton, launch, place, recorded

STREAM = 7


class Kernel:
    """Stands for a kernel of Triton's: adds a number to a tensor, and into a second one."""

    __name__ = "add"
    params = tuple(SimpleNamespace(do_not_specialize=n != 1) for n in range(5))
    arg_names = ("values", "kept", "number", "one", "SIZE")
    pre_run_hooks: tuple[Any, ...] = ()

    def __init__(self, **metadata: Any) -> None:
        usual = {**launching._UNUSUAL, "num_warps": 4, "shared": 256}
        kinds = ("*fp32", "*fp32", "fp32", "constexpr", "constexpr")
        source = SimpleNamespace(signature=dict(zip(self.arg_names, kinds, strict=True)))
        self.compiled = SimpleNamespace(src=source, metadata=SimpleNamespace(**{**usual, **metadata}), function=99)
        self.calls = 0

    def __getitem__(self, grid: Any) -> Any:
        def run(values: torch.Tensor, kept: torch.Tensor, number: float, one: int, SIZE: int) -> Any:  # noqa: N803
            self.calls += 1
            values += number
            kept += number
            return self.compiled

        return run


class Driver(launching._CudaDriver):
    """Stands for the CUDA driver; does what :class:`Kernel` does with the parameters it gets."""

    def __init__(self) -> None:
        hooks = SimpleNamespace(launch_enter_hook=SimpleNamespace(calls=[]), launch_exit_hook=SimpleNamespace(calls=[]))
        self._device, self._stream = (lambda: 1), (lambda device: STREAM * device)
        self._runtime, self._enter, self._leave = hooks, hooks.launch_enter_hook, hooks.launch_exit_hook
        self._calls = self._enter.calls, self._leave.calls, launching._observers
        self.configs: list[list[int]] = []
        self.error = 0
        self._call = self.launched  # type: ignore[assignment]

    def launched(self, config: Any, function: Any, cells: Any, _: None) -> int:
        given = config._obj
        self.configs.append(
            [*given.grid, *given.block, given.shared, given.stream, ctypes.addressof(function._obj), len(cells._obj)]
        )
        assert (given.attributes, given.count) == (None, 0)
        number = ctypes.c_float.from_address(cells._obj[2]).value
        for cell in cells._obj[:2]:
            ctypes.c_float.from_address(ctypes.c_uint64.from_address(cell).value).value += number
        return self.error


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setattr(launching, "_driver", lambda: found)
    return found


def tensors(count: int) -> list[torch.Tensor]:
    return [torch.zeros(1) for _ in range(count)]


def planned(kernel: Kernel, moving: torch.Tensor, kept: torch.Tensor) -> LaunchPlan:
    with recorded() as launches:
        launch(kernel, (2, 3), (moving, kept, 2.5, 1), SIZE=64)
    return LaunchPlan(launches, (moving,))


def test_a_plan_takes_new_tensors_for_the_moving_ones_and_keeps_the_others() -> None:
    kernel, (first, second, kept) = Kernel(), tensors(3)
    plan = planned(kernel, first, kept)
    plan.run(second)
    assert (first.item(), second.item(), kept.item()) == (2.5, 2.5, 5.0)
    assert kernel.calls == 2


def test_the_driver_gets_addresses_numbers_grid_and_stream(driver: Driver) -> None:
    kernel, (first, second, kept) = Kernel(), tensors(3)
    plan = planned(kernel, first, kept)
    plan.run(second)
    plan.run(first)
    assert (first.item(), second.item(), kept.item()) == (5.0, 2.5, 7.5)
    assert driver.configs == [[2, 3, 1, 128, 1, 1, 256, STREAM, 99, 5]] * 2, "two parameters are Triton's own"
    assert kernel.calls == 1
    assert place()() == (1, STREAM)


def test_each_run_has_the_addresses_of_its_tensors(driver: Driver) -> None:
    first, second, text, other = tensors(4)
    with recorded() as launches:
        launch(Kernel(), (2, 3), (first, text, 2.5, 1), SIZE=64)
    plan = LaunchPlan(launches, (first, text))
    for given in ((first, text), (second, text), (first, other), (second, text)):
        plan.run(given[0], given[1:])
    assert [item.item() for item in (first, second, text, other)] == [7.5, 5.0, 10.0, 2.5]


def test_memory_that_a_plan_reads_lives_as_long_as_the_plan(driver: Driver) -> None:
    kept = torch.zeros(1)
    address, plan = kept.data_ptr(), planned(Kernel(), torch.zeros(1), kept)
    del kept
    plan.run(torch.zeros(1))
    assert ctypes.c_float.from_address(address).value == 5.0


def test_a_plan_does_not_keep_the_logits_of_a_step(driver: Driver) -> None:
    moving, kept = tensors(2)
    logits = weakref.ref(moving)
    plan = planned(Kernel(), moving, kept)
    plan.run(moving)
    del moving
    assert logits() is None
    assert plan.bytes == kept.nbytes


@pytest.mark.parametrize(
    "unusual",
    [{"num_ctas": 2}, {"launch_pdl": True}, {"global_scratch_size": 8}, {"shared": 300_000}],
    ids=lambda unusual: next(iter(unusual)),
)
def test_a_kernel_with_unusual_demands_is_launched_by_triton(driver: Driver, unusual: dict[str, Any]) -> None:
    kernel, moving = Kernel(**unusual), torch.zeros(1)
    planned(kernel, moving, torch.zeros(1)).run(moving)
    assert (kernel.calls, driver.configs) == (2, [])


@pytest.mark.parametrize("way", ["added", "replaced"])
def test_while_a_hook_watches_triton_launches(driver: Driver, way: str) -> None:
    kernel, moving = Kernel(), torch.zeros(1)
    plan = planned(kernel, moving, torch.zeros(1))
    if way == "added":
        driver._runtime.launch_exit_hook.calls.append(print)
    else:
        driver._runtime.launch_enter_hook = print
    plan.run(moving)
    assert (kernel.calls, driver.configs) == (2, [])


def test_a_refused_launch_is_an_error(driver: Driver) -> None:
    moving = torch.zeros(1)
    plan = planned(Kernel(), moving, torch.zeros(1))
    driver.error = 700
    with pytest.raises(RuntimeError, match="error 700"):
        plan.run(moving)


def test_a_thread_without_a_context_gets_one(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    moving = torch.zeros(1)
    plan = planned(Kernel(), moving, torch.zeros(1))
    driver.error = 201
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: setattr(driver, "error", 0))
    plan.run(moving)
    assert len(driver.configs) == 2


def test_a_view_of_a_moving_tensor_would_keep_its_old_address() -> None:
    moving = torch.zeros(2)
    with pytest.raises(ValueError, match="add reads a moving tensor through another"):
        planned(Kernel(), moving, moving[1:])


def test_a_known_launch_goes_to_the_driver_with_all_its_values(driver: Driver) -> None:
    kernel, (first, second, kept) = Kernel(), tensors(3)
    for values, number, grid in ((first, 2.5, (2, 3)), (second, 4.0, (5, 1))):
        launch(kernel, grid, (values, kept, number, 1), SIZE=64)
    assert (first.item(), second.item(), kept.item()) == (2.5, 4.0, 6.5)
    assert kernel.calls == 1
    assert driver.configs == [[5, 1, 1, 128, 1, 1, 256, STREAM, 99, 5]]


@pytest.mark.parametrize(
    "other",
    [{"SIZE": 32}, {"values": torch.zeros(1, dtype=torch.float64)}, {"kept": torch.zeros(8)[1:]}, {"one": 2**31}],
    ids=lambda other: next(iter(other)),
)
def test_triton_launches_what_it_compiles_otherwise(driver: Driver, other: dict[str, Any]) -> None:
    """Another constant, type, or alignment, or a number that needs 64 bits."""
    kernel = Kernel()
    for given in ({}, other):
        usual = {"values": torch.zeros(1), "kept": torch.zeros(8), "one": 1, "SIZE": 64, **given}
        launch(kernel, (1,), (usual["values"], usual["kept"], 2.5, usual["one"]), SIZE=usual["SIZE"])
    assert (kernel.calls, driver.configs) == (2, [])


def test_observers_see_all_launches_by_triton(driver: Driver) -> None:
    kernel, moving = Kernel(), torch.zeros(1)
    plan = planned(kernel, moving, torch.zeros(1))
    with by_triton():
        plan.run(moving)
        launch(kernel, (1,), (moving, moving, 1.0, 1), SIZE=64)
    assert (kernel.calls, driver.configs) == (3, [])


def test_no_programs_are_no_launch_for_the_driver(driver: Driver) -> None:
    kernel, (values, kept) = Kernel(), tensors(2)
    for grid in ((1,), (0,)):
        launch(kernel, grid, (values, kept, 1.0, 1), SIZE=64)
    assert (kernel.calls, driver.configs) == (2, [])


def test_threads_record_their_own_launches() -> None:
    kernel, moving = Kernel(), torch.zeros(1)
    with recorded() as launches:
        other = Thread(target=launch, args=(kernel, (1,), (moving, moving, 1.0, 1)), kwargs={"SIZE": 1})
        other.start()
        other.join()
    assert (kernel.calls, launches) == (1, [])
