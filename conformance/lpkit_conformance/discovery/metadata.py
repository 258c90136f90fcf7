"""Reads installed distributions through ``importlib_metadata``, with the same result on every Python.

Processes that load plugins do not import this module: vLLM's loaders use the standard library there.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from importlib_metadata import Distribution as Distribution
from importlib_metadata import EntryPoint as EntryPoint
from importlib_metadata import packages_distributions as packages_distributions


def unique(path: Sequence[str] | None = None) -> Iterator[tuple[str, Distribution]]:
    """Yield the first distribution of each normalised name: a wheel next to an editable install counts once."""
    seen = set()
    for dist in Distribution.discover() if path is None else Distribution.discover(path=list(path)):
        # The private name that entry_points() uses comes from the folder's name; parsing a hundred METADATA files
        # would take most of this command's time.
        name = str(getattr(dist, "_normalized_name", None) or field(dist, "Name").lower())
        if name not in seen:
            seen.add(name)
            yield name, dist


def find(name: str, path: Sequence[str] | None = None) -> Distribution | None:
    """Return the first distribution of that name along ``path`` (``sys.path`` by default), without reading others."""
    return next(iter(Distribution.discover(name=name, path=list(sys.path if path is None else path))), None)


def field(dist: Distribution, key: str) -> str:
    """Return a field of the metadata, or "?"."""
    try:
        return str(dist.metadata[key] or "?")
    except Exception:  # damaged metadata raises KeyError, TypeError or OSError, depending on the version
        return "?"


def text_of(dist: Distribution, file: str) -> str:
    """Return the text of a metadata file, or ""."""
    try:
        return dist.read_text(file) or ""
    except (OSError, ValueError):
        return ""


def is_editable(dist: Distribution) -> bool:
    """Return True for an installation with ``pip install -e``."""
    info = direct_url(dist).get("dir_info")
    return isinstance(info, dict) and info.get("editable") is True


def source_folder(dist: Distribution) -> Path | None:
    """Return the folder from which the distribution was installed, if it was a folder."""
    parts = urlsplit(str(direct_url(dist).get("url", "")))
    if parts.scheme != "file":
        return None
    from urllib.request import url2pathname  # imports ssl, http and email: a third of `lpkit doctor`'s time

    return Path(url2pathname(parts.path)).resolve()


def direct_url(dist: Distribution) -> dict[str, Any]:
    """Return the record of an installation from elsewhere than an index (PEP 610); {} without a readable one."""
    try:
        record = json.loads(text_of(dist, "direct_url.json") or "{}")
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def ordered(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparing versions."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
