"""``import lpkit`` is nearly free: a plugin imports it in every vLLM process, and ``lpkit --help`` on every call."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "vllm", "pydantic", "typer", "rich", "numpy"}
LIGHT = ("loading", "interfaces.v1_interface", "interfaces.v2_interface")


def test_importing_and_listing_the_public_names_loads_nothing_heavy() -> None:
    imports = ", ".join(f"lpkit.{module}" for module in LIGHT)
    code = f"import sys, {imports}; dir(lpkit); lpkit.__version__; lpkit.export; print(*({HEAVY} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_modules_of_functions_are_there_after_importing_lpkit_alone() -> None:
    code = "import lpkit; print(lpkit.kernels.keep_ids_, lpkit.rng.mix, lpkit.sequences.begun)"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
