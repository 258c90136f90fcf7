"""Defects that LP002 must catch."""

from __future__ import annotations

import torch

from zoo.correct.portable import PortableBias
from zoo.registry import defect, replaced

# No CUDA here to initialise: the check is shown a process in which the import has done it.
defect(
    "LP002",
    "its module makes a CUDA tensor when imported (pretended)",
    style="packaging",
    name="CudaAtImport",
    case=PortableBias.CASE,
    surroundings=lambda: replaced(torch.cuda, "is_initialized", lambda: True),
)(PortableBias)
