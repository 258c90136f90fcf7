"""Plans give the CUDA driver the arguments that Triton gives it; here the driver does nothing."""

from __future__ import annotations

from pathlib import Path

from separate import ROOT, WITHOUT_VLLM, separately

TOOLS = ROOT / "conformance" / "tools"

SETUP = """
import ctypes, sys
from pathlib import Path
from host_cost.driver import build, install
driver = install(build(Path(sys.argv[1])))

import torch
from lpkit.kernels import launching
from host_cost.steps import of_plugin, plugins

class Config(ctypes.Structure):
    _fields_ = launching._Config._fields_

launched = ctypes.c_long.in_dll(driver, "launches")

def handed(bound, launch):
    \"""Launch, and return what the driver got for this function.\"""
    sizes = {ctypes.addressof(cell): ctypes.sizeof(cell) for cell in bound.cells}
    ctypes.c_uint.in_dll(driver, "parameters").value = len(bound.given[2]._obj)
    ctypes.c_void_p.in_dll(driver, "watched").value = ctypes.addressof(bound.given[1]._obj)
    ctypes.memset(ctypes.addressof(Config.in_dll(driver, "config")), 0, ctypes.sizeof(Config))
    launch()
    config, values = Config.in_dll(driver, "config"), (ctypes.c_uint64 * 64).in_dll(driver, "values")
    assert config.grid[0] > 0, "not launched"
    given = *config.grid, *config.block, config.shared, config.stream, config.count
    return given, [value % 256 ** sizes[at] for at, value in zip(bound.given[2]._obj, values)]
"""

PLANS = (
    SETUP
    + """
with torch.inference_mode():
    for name, cls, case in plugins(set(sys.argv[2:])):
        for runner in ("v1", "v2"):
            step = of_plugin(name, cls, case, runner, 3)
            for _ in range(3):
                step.prepare()
                before = launched.value
                step.call()
            plan, = step.processor._by_slot._plans.values()
            assert plan._driver is not None, (name, runner)
            assert launched.value - before == len(plan._launches), (name, runner)
            for bound in plan._bound:
                ours = handed(bound, step.call)
                with launching.by_triton():
                    theirs = handed(bound, step.call)
                assert ours == theirs, (name, runner, ours, theirs)
"""
)

EACH = (
    SETUP
    + """
original, seen, compared, refused = launching.launch, [], set(), set()
to_driver = launching._CudaDriver.launch
launching._CudaDriver.launch = lambda self, bounds: (seen.extend(bounds), to_driver(self, bounds))

def compare(kernel, grid, args, **options):
    if launching._thread.recording is not None:  # a chain's rules have plans of their own
        return original(kernel, grid, args, **options)

    def launch():
        original(kernel, grid, args, **options)

    launch()  # may compile
    seen.clear()
    launch()
    if not seen:
        refused.add(kernel.__name__)
        return
    bound, = seen
    ours = handed(bound, launch)
    with launching.by_triton():
        theirs = handed(bound, launch)
    assert ours == theirs, (kernel.__name__, ours, theirs)
    compared.add((kernel.__name__, *(value.__name__ for value in options.values() if hasattr(value, "__name__"))))

for name, module in list(sys.modules.items()):
    if name.startswith("lpkit.kernels.triton_") and hasattr(module, "launch"):
        module.launch = compare
with torch.inference_mode():
    for name, cls, case in plugins():
        for runner in ("v1", "v2"):
            step = of_plugin(name, cls, case, runner, 3)
            step.processor._by_slot = None
            for _ in range(2):
                step.prepare()
                step.call()
assert len(compared) >= 20 and not refused, (compared, refused)
"""
)


def run(code: str, *arguments: str) -> None:
    separately("-W", "ignore", "-c", WITHOUT_VLLM + code, *arguments, path=TOOLS)


def test_a_plan_launches_as_triton_does(tmp_path: Path) -> None:
    rules = ("allowed-tokens", "min-p", "target-token", "temperature", "top-n-sigma", "truncation")
    run(PLANS, str(tmp_path), *rules)


def test_each_launch_of_each_reference_plugin_is_as_triton_would_do_it(tmp_path: Path) -> None:
    run(EACH, str(tmp_path))
