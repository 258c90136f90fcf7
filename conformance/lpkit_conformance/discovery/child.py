"""The child process that imports plugins; :mod:`.load` starts it."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import EntryPoint
from typing import Any

from lpkit import loading

from lpkit_conformance.processes.child import Parent


def load(parent: Parent) -> None:
    """Take the path, exactly; then load each entry point as vLLM does, and answer with what it is."""
    sys.path[:] = parent.job()
    while entry := parent.job():
        parent.answer(_load(*entry))


def _load(name: str, value: str) -> dict[str, Any]:
    try:
        obj: Any = loading.load_entry_point(EntryPoint(name, value, loading.GROUP))
    except loading.LoadError as error:
        if _lacks_vllm(error):
            return {"skipped": "not imported: it needs vLLM, which is not installed here"}
        # The cause has the same message without the plugin's name, which the row shows.
        return {"problem": str(error.__cause__ or error)}
    problem = ""
    if not isinstance(obj, type):
        problem = f"{value} is {loading.describe(obj)}, not a class"
    elif not loading.interfaces_of(obj):
        problem = f"{value} derives from neither of vLLM's interfaces"
    facts: dict[str, Any] = {"problem": problem, "interfaces": sorted(loading.interfaces_of(obj))}
    if isinstance(obj, type):
        facts |= {"defined": f"{obj.__module__}:{obj.__qualname__}", "reads": _declared(obj)}
    return facts


def _declared(cls: type[Any]) -> str | None:
    base = getattr(sys.modules.get("lpkit.portable.base"), "PortableProcessor", None)
    return str(getattr(cls, "history", "")) if base is not None and issubclass(cls, base) else None


def _lacks_vllm(error: BaseException) -> bool:
    """Return True if the import failed only because vLLM is not installed here."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] == "vllm":
            return importlib.util.find_spec("vllm") is None
        cause = cause.__cause__
    return False
