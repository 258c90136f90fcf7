"""The real Triton over ``libcuda.c``, on tensors of the CPU: kernels compute nothing, and all else is as on a GPU."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch


def build(folder: Path) -> Path:
    """Compile the driver into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libcuda.so.1"
    source = Path(__file__).with_name("libcuda.c")
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)], check=True
    )
    return library


def install(library: Path, triton: Path | None = None) -> ctypes.CDLL:
    """Make Triton, not imported before, and lpkit take the CPU for a GPU; for the rest of the process.

    Args:
        library: from :func:`build`.
        triton: folder with the package; None: the installed one.
    """
    if triton is not None:
        sys.path.insert(0, str(triton))
    os.environ["TRITON_LIBCUDA_PATH"] = str(library.parent)
    os.environ.setdefault("TRITON_CACHE_DIR", str(library.parent / "compiled"))
    driver = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    # A builtin for the builtin, and a function of Python for that which torch has.
    vars(torch._C)["_cuda_getCurrentRawStream"] = (0).__mul__
    vars(torch.cuda).update(current_device=lambda: 0, get_device_capability=lambda device=None: (9, 0))
    with mock.patch.object(torch.cuda, "is_available", lambda: True):
        from triton.runtime import driver as active

        assert active.active.get_current_target().backend == "cuda"
    vars(torch)["empty"] = _zeros(torch.empty)
    from lpkit.kernels import fused

    cpu = torch.device("cpu")
    whole, few = fused.together(fused.WHOLE_ROWS), fused.together(fused.FEW)

    def prepared(kernels: Any, original: Any) -> Any:
        return lambda device, *given: kernels if device == cpu else original(device, *given)

    vars(fused).update(prepare=prepared(whole, fused.prepare), prepare_few=prepared(few, fused.prepare_few))
    return driver


def _zeros(empty: Any) -> Any:
    """Return ``torch.empty`` with zeros in small tensors, because no kernel writes the lengths that index others."""

    def zeros(*shape: Any, **options: Any) -> Any:
        made = empty(*shape, **options)
        if made.numel() <= 4096 and made.device.type == "cpu":
            ctypes.memset(made.data_ptr(), 0, made.nbytes)
        return made

    return zeros
