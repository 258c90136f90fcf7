"""vLLM's two model runners, by the names that users and our JSON give them."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Runner: TypeAlias = Literal["v1", "v2"]

V1: Final = "v1"
V2: Final = "v2"
