"""JSON, for programs."""

from __future__ import annotations

import json
from typing import IO, Any, Protocol


class Document(Protocol):
    """What has a JSON form."""

    def to_json(self) -> dict[str, Any]:
        """A dict with a ``schema``."""


def write(document: Document, file: IO[str], verbose: bool = False) -> None:
    """The whole document, whatever ``verbose`` says."""
    file.write(json.dumps(document.to_json(), indent=2) + "\n")
