"""A new processor compiles all that its requests need: no request waits for a compiler.

Triton binds, specializes and compiles here as for a GPU that this machine lacks; nothing is launched.
"""

from __future__ import annotations

import pytest
from separate import ROOT, WITHOUT_VLLM, separately

CODE = """
import sys
from unittest import mock

import torch
from lpkit.kernels import fused
from lpkit_conformance.bench.candidates import Parameters
from lpkit_conformance.hosts import parts_of
from lpkit_conformance.hosts.steady import SteadyBatch
from plugins_here import FOLDERS, announced
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import CompiledKernel
from triton.runtime import JITFunction, driver


class AbsentGpu:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0


compiled = []
compile_for_real = JITFunction._do_compile


def noted(kernel, *arguments, **options):
    compiled.append(kernel.__name__)
    return compile_for_real(kernel, *arguments, **options)


def tried(device, names, attempt):
    found = fused.together(names)
    attempt(found)
    return found


CPU, VOCAB = torch.device("cpu"), int(sys.argv[1])
driver.set_active(AbsentGpu())
with (
    mock.patch.object(CompiledKernel, "_init_handles", lambda kernel: None),
    mock.patch.object(CompiledKernel, "run", lambda *arguments: None),
    mock.patch.object(JITFunction, "_do_compile", noted),
    mock.patch.object(fused, "_tried", tried),
    mock.patch.multiple(torch, empty=torch.zeros, empty_like=torch.zeros_like),  # nothing is computed: no odd numbers
    torch.inference_mode(),
):
    for folder in FOLDERS:
        cls, case = announced(folder)
        for runner in ("v1", "v2"):
            for batch in (1, 9):
                steady = SteadyBatch(batch, VOCAB, 100, 1.0, CPU)
                candidate = parts_of(runner).candidate("plugin", cls, Parameters(case), CPU)
                change = steady.change()
                candidate.prepare(steady, change)
                if not compiled:
                    raise SystemExit("nothing was compiled")
                before = len(compiled)
                for _ in range(2):
                    candidate.follow()
                    candidate.apply(torch.randn(batch, VOCAB))
                    steady.advance()
                    candidate.prepare(steady, steady.change())
                new = compiled[before:]
                assert not new, f"{folder.name} on {runner}, {batch} requests: {new}"
"""


@pytest.mark.parametrize("vocab", [32_000, 50_257])  # a multiple of 16, for which Triton compiles other code, and none
def test_no_request_waits_for_a_compiler(vocab: int) -> None:
    separately("-c", WITHOUT_VLLM + CODE, str(vocab), path=ROOT / "benchmarks")
