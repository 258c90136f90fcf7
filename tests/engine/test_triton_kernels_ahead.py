"""Compiled code of the fused kernels for GPUs that this machine lacks: no spills, and words of 128 bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernels_ahead import CAPABILITIES, FEW, TOURNAMENT, WHOLE_ROWS, Kernel, compiled
from lpkit.kernels.triton_rows import SPAN

THREADS = 512
"""At once on a multiprocessor: with 8 to 16 logits each, 16 KiB at least are in flight, what an H100's memory takes."""


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kernel", WHOLE_ROWS, ids=lambda kernel: kernel.name)
def test_kernels_spill_nothing_and_pass_over_rows_in_wide_words_whatever_the_stride(
    kernel: Kernel, capability: int
) -> None:
    found = compiled(kernel, capability, aligned=False)
    assert found.spills == 0
    assert found.threads >= THREADS, f"{found.registers} registers"
    per_thread = kernel.constants.get("BLOCK", SPAN) // (32 * 8)
    assert found.loads[128] == (kernel.passes * per_thread // 4 if kernel.reads else 0), "a tile within a row"
    assert found.stores[128] == (per_thread // 4 if kernel.writes else 0)


@pytest.mark.parametrize("capability", [min(CAPABILITIES), max(CAPABILITIES)])  # what is between allots registers alike
@pytest.mark.parametrize("kernel", [*TOURNAMENT, *FEW], ids=lambda kernel: kernel.name)
def test_kernels_of_a_few_logits_and_of_tournaments_spill_nothing_and_fill_a_multiprocessor_as_well(
    kernel: Kernel, capability: int
) -> None:
    found = compiled(kernel, capability, aligned=False)
    assert found.spills == 0
    assert found.threads >= THREADS, f"{found.registers} registers"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_penalties_are_rounded_as_by_separate_operations(capability: int) -> None:
    kernel = next(item for item in FEW if item.name == "penalize_, first")
    separate, together = (compiled(replace(kernel, fused=fused), capability, aligned=False) for fused in (False, True))
    # Both divide with such instructions; the two subtractions of a product use them only where they may.
    assert together.fused == separate.fused + 2 * max(1, kernel.constants["BLOCK"] // (32 * kernel.warps))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_what_is_kept_is_put_back_when_all_threads_have_masked(capability: int) -> None:
    kernel = next(item for item in WHOLE_ROWS if item.name == "keep_ids_, second")
    assert compiled(kernel, capability, aligned=False).barriers >= 1
