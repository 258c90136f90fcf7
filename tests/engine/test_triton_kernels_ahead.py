"""Compiled code of the fused kernels for GPUs that this machine lacks: no spills, and words of 128 bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernels_ahead import CAPABILITIES, Kernel, compiled, kernels, own_steps

THREADS = 512
"""At once on a multiprocessor: with 8 to 16 logits each, 16 KiB at least are in flight, what an H100's memory takes."""

PASSES = {"_statistics": (1, 0), "_mask_by_limit": (1, 1), "_exclude": (2, 1), "_retemper": (1, 1)}
PASSES |= {"_add_hashed": (1, 1), "_keep": (0, 1)}
"""How often a kernel goes over whole rows to read them, and to write them."""

WHOLE_ROWS = [kernel for kernel in kernels() if kernel.rule in PASSES]
OTHERS = [kernel for kernel in kernels() if kernel.rule not in PASSES]


def named(name: str) -> Kernel:
    return next(kernel for kernel in kernels() if kernel.name == name)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kernel", WHOLE_ROWS, ids=lambda kernel: kernel.name)
def test_kernels_spill_nothing_and_pass_over_rows_in_wide_words_whatever_the_stride(
    kernel: Kernel, capability: int
) -> None:
    found = compiled(kernel, capability)
    assert found.spills == 0
    assert found.threads >= THREADS, f"{found.registers} registers"
    words = dict(kernel.constants)["BLOCK"] // (32 * 8) // 4  # of a thread, for a tile within a row
    reads, writes = PASSES[kernel.rule]
    assert (found.loads[128], found.stores[128]) == (reads * words, writes * words)


@pytest.mark.parametrize("capability", [min(CAPABILITIES), max(CAPABILITIES)])  # those between have as many registers
@pytest.mark.parametrize("kernel", OTHERS, ids=lambda kernel: kernel.name)
def test_kernels_of_a_few_logits_and_of_tournaments_spill_nothing_and_fill_a_multiprocessor_as_well(
    kernel: Kernel, capability: int
) -> None:
    found = compiled(kernel, capability)
    assert found.spills == 0
    # Penalties compare 64 tokens with 64, and with drafts a text is in two memories.
    least = 384 if kernel.name == "_by_text _lower" else THREADS
    assert found.threads >= least, f"{found.registers} registers"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_penalties_are_rounded_as_by_separate_operations(capability: int) -> None:
    separate = named("_by_text _lower")
    together = replace(separate, options=(("num_warps", dict(separate.options)["num_warps"]),))
    warps, block = dict(separate.options)["num_warps"], dict(separate.constants)["BLOCK"]
    # Both divide with such instructions; the two subtractions of a product use them only where they may.
    ours, others = compiled(separate, capability), compiled(together, capability)
    assert others.fused == ours.fused + 2 * max(1, block // (32 * warps))


@pytest.mark.parametrize("capability", CAPABILITIES[:2])  # a B200's instruction of two numbers has another name
@pytest.mark.parametrize(("kernel", "step"), [("_by_text", "Rounds"), ("_over_row", "Cools")])
def test_an_authors_own_step_is_rounded_as_by_separate_operations(capability: int, kernel: str, step: str) -> None:
    separate = named(f"{kernel} {own_steps()[step][1][0].name}")
    together = replace(separate, options=(("num_warps", dict(separate.options)["num_warps"]),))
    assert compiled(together, capability).fused > compiled(separate, capability).fused


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_what_is_kept_is_put_back_when_all_threads_have_masked(capability: int) -> None:
    assert compiled(named("_over_row _keep"), capability).barriers >= 1
