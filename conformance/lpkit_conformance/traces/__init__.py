"""Recorded traces: the calls that real vLLM engines made to their logits processors, as data to replay.

``names()`` lists the traces that ship with lpkit; ``load`` reads a shipped trace or any file of the same format.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path

from lpkit_conformance.errors import TraceError
from lpkit_conformance.traces.codec import dumps, loads, write
from lpkit_conformance.traces.events import kinds
from lpkit_conformance.traces.schema import (
    SCHEMA,
    Added,
    Apply,
    EngineInfo,
    Move,
    Placement,
    Trace,
    TraceRequest,
    Update,
    V1Step,
    V2Step,
)
from lpkit_conformance.traces.validate import validate

__all__ = [
    "SCHEMA",
    "Added",
    "Apply",
    "EngineInfo",
    "Move",
    "Placement",
    "Trace",
    "TraceError",
    "TraceRequest",
    "Update",
    "V1Step",
    "V2Step",
    "dumps",
    "kinds",
    "load",
    "loads",
    "names",
    "validate",
    "write",
]

_SUFFIX = ".jsonl"


def names(runner: str | None = None) -> tuple[str, ...]:
    """Return the names of the shipped traces, for example ``"v1_churn"``, sorted; ``runner`` "v1" or "v2" filters
    them."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    every = sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))
    return tuple(name for name in every if runner is None or name.startswith(f"{runner}_"))


def load(name_or_path: str | Path) -> Trace:
    """A shipped trace by name, or the trace in a file; parsed strictly and validated.

    A string that names a shipped trace is never taken for a path. Raises TraceError, with file and line.
    """
    shipped = isinstance(name_or_path, str) and name_or_path in names()
    shown = f"{name_or_path}{_SUFFIX}" if shipped else str(name_or_path)
    try:
        if shipped:
            text = resources.files(__name__).joinpath(shown).read_text(encoding="utf-8")
        else:
            text = Path(name_or_path).read_text(encoding="utf-8")
    except FileNotFoundError:
        listed = ", ".join(names()) or "none"
        raise TraceError(f"no such file, and no shipped trace of that name (there are: {listed})", path=shown) from None
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot be read: {error}", path=shown) from None
    return _valid(text, shown)


@lru_cache(maxsize=16)
def _valid(text: str, shown: str) -> Trace:
    trace = loads(text, shown)
    validate(trace)
    return trace
