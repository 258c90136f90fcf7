"""What the compiler makes of the fused kernels for GPUs that are not here: no spills, and words of 128 bits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance" / "tools"))

from kernels_ahead import ALL, CAPABILITIES, Kernel, compiled

THREADS = 512
"""At once on a multiprocessor: with 8 to 16 logits each, 16 KiB at least are in flight, what an H100's memory takes."""


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.name)
def test_kernels_spill_nothing_and_pass_over_rows_in_wide_words_whatever_the_stride(
    kernel: Kernel, capability: int
) -> None:
    found = compiled(kernel, capability, aligned=False)
    assert found.spills == 0
    assert found.threads >= THREADS, f"{found.registers} registers"
    per_thread = kernel.constants["BLOCK"] // (32 * 8)
    assert found.loads[128] == per_thread // 4, "a tile within a row"
    assert found.stores[128] == (per_thread // 4 if kernel.writes else 0)
