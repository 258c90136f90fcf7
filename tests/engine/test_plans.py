"""What a plan hands to the CUDA driver is what Triton hands to it; here to a driver that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "conformance" / "tools"

CODE = """
import ctypes, sys
from pathlib import Path
from host_cost.driver import build, install
driver = install(build(Path(sys.argv[1])))

import torch
from lpkit.kernels import launching
from host_cost.steps import of_plugin, plugins

class Config(ctypes.Structure):
    _fields_ = launching._Config._fields_

def handed(count):
    config, values = Config.in_dll(driver, "config"), (ctypes.c_uint64 * 64).in_dll(driver, "values")
    function = ctypes.c_void_p.in_dll(driver, "function").value
    return [*config.grid, *config.block, config.shared, config.stream, config.count, function], values[:count]

launched, compared = ctypes.c_long.in_dll(driver, "launches"), 0
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
            assert launched.value - before == len(plan._launches) == 2
            for (item, _), (*given, cells) in zip(plan._launches, plan._bound, strict=True):
                count = ctypes.c_uint.in_dll(driver, "parameters")
                count.value = len(cells)
                item.kernel[item.grid](*item.args, **item.options)
                by_triton, theirs = handed(count.value)
                for cell, value in zip(cells, theirs):
                    bits, width = int.from_bytes(bytes(cell), "little"), 8 * ctypes.sizeof(cell)
                    if not any(cell is moving for moving in plan._cells):  # Triton launched with an earlier step's
                        assert bits == value % 2**width, (name, item.kernel.__name__)
                assert plan._driver.call(*given) == 0
                by_plan, ours = handed(count.value)
                count.value = 0  # the next launch may have fewer
                assert by_plan == by_triton, (name, by_plan, by_triton)
                compared += 1
assert compared == 4 * len(sys.argv[2:]), compared
"""


def test_a_plan_launches_as_triton_does(tmp_path: Path) -> None:
    rules = ("allowed-tokens", "min-p", "target-token", "temperature", "top-n-sigma", "truncation")
    path = os.pathsep.join(filter(None, (str(TOOLS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, str(tmp_path), *rules],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
