"""Watching the tensor operations of a plugin."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that is never compiled; torch would otherwise import its compiler on first use (2 s)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
