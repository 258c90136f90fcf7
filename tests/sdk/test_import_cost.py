"""``import lpkit`` is nearly free: a plugin imports it in every vLLM process, and ``lpkit --help`` on every call."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ["torch", "vllm", "pydantic", "typer", "rich", "numpy"]


@pytest.mark.parametrize(
    "module", ["lpkit", "lpkit.loading", "lpkit.interfaces.v1_interface", "lpkit.interfaces.v2_interface"]
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_listing_the_public_names_loads_nothing_heavy() -> None:
    code = f"import sys, lpkit; dir(lpkit); lpkit.__version__; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_modules_of_functions_are_there_after_importing_lpkit_alone() -> None:
    code = "import lpkit; print(lpkit.kernels.keep_ids_, lpkit.rng.mix, lpkit.sequences.begun)"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_exports_are_there_without_an_import_of_other_engines() -> None:
    code = f"import sys, lpkit; lpkit.export; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
