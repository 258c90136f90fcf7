"""JSON, for programs."""

from __future__ import annotations

import json
from typing import IO, Any, Protocol


class Document(Protocol):
    """A result with a JSON form."""

    def to_json(self) -> dict[str, Any]:
        """A dict with a ``schema``."""


def write(document: Document, file: IO[str], verbose: bool = False) -> None:
    """Write the whole document; ``verbose`` has no effect."""
    file.write(json.dumps(document.to_json(), indent=2) + "\n")
