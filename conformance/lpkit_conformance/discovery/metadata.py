"""Installed distributions, read through ``importlib_metadata``: the same ones with every Python.

Processes that load plugins do not import this: what vLLM's loaders see there is the standard library's business.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from importlib_metadata import Distribution, EntryPoint, packages_distributions

__all__ = [
    "Distribution",
    "EntryPoint",
    "field",
    "find",
    "is_editable",
    "ordered",
    "packages_distributions",
    "source_folder",
    "text_of",
    "unique",
]


def unique(path: Sequence[str] | None = None) -> Iterator[tuple[str, Distribution]]:
    """One per normalised name, the first along the path: a wheel next to an editable install counts once."""
    seen = set()
    for dist in Distribution.discover() if path is None else Distribution.discover(path=list(path)):
        # The private name by which entry_points() tells them apart: it comes from the folder's name, and parsing a
        # hundred METADATA files would take most of this command's time.
        name = str(getattr(dist, "_normalized_name", None) or field(dist, "Name").lower())
        if name not in seen:
            seen.add(name)
            yield name, dist


def find(name: str, path: Sequence[str] | None = None) -> Distribution | None:
    """The first of that name along ``path`` (``sys.path`` by default); no other one is read."""
    return next(iter(Distribution.discover(name=name, path=list(sys.path if path is None else path))), None)


def field(dist: Distribution, key: str) -> str:
    """A field of the metadata, or "?"."""
    try:
        return str(dist.metadata[key] or "?")
    except Exception:  # damaged metadata raises KeyError, TypeError or OSError, depending on the version
        return "?"


def text_of(dist: Distribution, file: str) -> str:
    """A file of the metadata, or ""."""
    try:
        return dist.read_text(file) or ""
    except (OSError, ValueError):
        return ""


def is_editable(dist: Distribution) -> bool:
    """Whether it was installed with ``pip install -e``."""
    info = _direct_url(dist).get("dir_info")
    return isinstance(info, dict) and info.get("editable") is True


def source_folder(dist: Distribution) -> Path | None:
    """The folder from which it was installed, if that was a folder."""
    parts = urlsplit(str(_direct_url(dist).get("url", "")))
    if parts.scheme != "file":
        return None
    from urllib.request import url2pathname  # it brings ssl, http and email: a third of `lpkit doctor`'s time

    return Path(url2pathname(parts.path)).resolve()


def _direct_url(dist: Distribution) -> dict[str, Any]:
    try:
        found = json.loads(text_of(dist, "direct_url.json") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def ordered(version: str) -> tuple[int, ...]:
    """The numbers of a version, by which it is older or newer."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
