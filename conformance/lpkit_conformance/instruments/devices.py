"""Refusal of operations that mix devices, as a GPU refuses them; torch's meta device itself is lenient."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from lpkit_conformance.instruments.dispatch import Watch

MAY_MIX = frozenset({"copy_", "_to_copy", "_copy_from", "index", "index_put", "index_put_", "_index_put_impl_"})
"""Operations that accept operands on both the CPU and a GPU: copies, and indexing with CPU indices."""


class MixedDevices(RuntimeError):
    """Error when the operands of one operation are on different devices."""

    what = "mixes tensors of different devices"


class NumpyOfDevice(MixedDevices):
    """Error of ``numpy()`` on a tensor that is not on the host."""

    what = "calls numpy() on a tensor of the device"


class RefuseMixedDevices(Watch):  # type: ignore[no-untyped-call]
    """Raises where a GPU would; the meta device itself is lenient."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name not in MAY_MIX:
            tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
            # A CPU scalar goes with every device.
            devices = {item.device.type for item in tensors if item.ndim or item.device.type != "cpu"}
            if len(devices) > 1:
                raise MixedDevices(f"{name} got tensors on the CPU and on the device of the logits")
        return func(*args, **kwargs)
