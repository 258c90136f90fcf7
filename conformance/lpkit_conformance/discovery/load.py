"""Loads each installed plugin in a child process: one that crashes, hangs or exits is a row, not the end.

``python -m lpkit_conformance.discovery.load FOLDER`` is the child. It reads ``FOLDER/wanted`` and appends a JSON line
to ``FOLDER/answers`` before and after each plugin, so that the parent knows which one ended it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from lpkit_conformance.discovery.installed import Inventory, Plugin, judge
from lpkit_conformance.discovery.interfaces import Deduction

TIME_LIMIT: Final = 120.0
"""Seconds per plugin; importing vLLM itself takes five to twenty."""
POLL: Final = 0.1

Answer = dict[str, Any]


def load(inventory: Inventory, limit: float = TIME_LIMIT) -> Inventory:
    """``inventory``, each plugin judged by the object that it really loads along ``sys.path``.

    A plugin that ends its process, or takes longer than ``limit`` seconds, has a problem that says so.
    """
    entries = [(plugin.name, plugin.target) for plugin in inventory.plugins]
    answers: dict[int, Answer] = {i: {} for i, entry in enumerate(entries) if entry == ("?", "?")}
    while todo := [index for index in range(len(entries)) if index not in answers]:
        started, ended = _run_child(entries, todo, limit, answers)
        # No plugin to blame is no progress: blame the first, or this would not end.
        if started not in answers or todo[0] not in answers:
            answers[started if started not in answers else todo[0]] = {"problem": ended}
    plugins = (_rejudged(plugin, answers[index]) for index, plugin in enumerate(inventory.plugins))
    return replace(inventory, plugins=tuple(plugins))


def _run_child(
    entries: list[tuple[str, str]], todo: list[int], limit: float, answers: dict[int, Answer]
) -> tuple[int, str]:
    """Collect answers until the child ends; returns the last plugin that it began, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="lpkit-load-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        wanted = {"path": sys.path, "entries": [(index, *entries[index]) for index in todo]}
        (folder / "wanted").write_text(json.dumps(wanted), "utf-8")
        (folder / "answers").touch()
        ended = _wait(folder, limit)
        started = todo[0]
        for line in (folder / "answers").read_text("utf-8").splitlines():
            answer = json.loads(line)
            started = answer.pop("index")
            if answer:
                answers[started] = answer
    return started, ended


def _wait(folder: Path, limit: float) -> str:
    answers, log = folder / "answers", folder / "log"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry or "." for entry in sys.path)}
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-m", "lpkit_conformance.discovery.load", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            size, deadline = 0, time.monotonic() + limit
            while time.monotonic() < deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return _ending(child.wait(timeout=POLL), log)
                if answers.stat().st_size != size:  # it went on: the next plugin has the full time again
                    size, deadline = answers.stat().st_size, time.monotonic() + limit
            return f"importing it took longer than {limit:g} s"
        finally:
            child.kill()
            child.wait()


def _ending(code: int, log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    said = f": {lines[-1]}" if lines else ""
    return f"importing it ended the process with {'signal' if code < 0 else 'exit code'} {abs(code)}{said}"


def _rejudged(plugin: Plugin, answer: Answer) -> Plugin:
    if not answer:
        return plugin
    if "skipped" in answer:
        return replace(plugin, note="; ".join(filter(None, (plugin.note.partition("; try")[0], answer["skipped"]))))
    if "interfaces" in answer:
        found = Deduction(frozenset(answer["interfaces"]), complete=True, problem=answer["problem"])
    else:
        found = Deduction(problem=answer["problem"], importable=False)
    blank = Plugin(plugin.name, plugin.target, plugin.distribution, plugin.version, source="import")
    judged = judge(blank, found)
    # What a class reads is told by its source, or by lpkit's own declaration.
    return replace(judged, defined=answer.get("defined", plugin.defined), reads=answer.get("reads") or plugin.reads)


def _child(folder: Path) -> None:
    from importlib.metadata import EntryPoint

    from lpkit import loading

    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # vLLM's diagnostics do not belong into a list
    wanted = json.loads((folder / "wanted").read_text("utf-8"))
    sys.path[:] = wanted["path"]  # exactly: "python -m" put the current folder first
    with (folder / "answers").open("a", encoding="utf-8") as out:

        def say(**answer: Any) -> None:
            out.write(json.dumps(answer) + "\n")
            out.flush()

        for index, name, value in wanted["entries"]:
            say(index=index)
            try:
                obj: Any = loading.load_entry_point(EntryPoint(name, value, loading.GROUP))
            except loading.LoadError as error:
                if _lacks_vllm(error):
                    say(index=index, skipped="not imported: it needs vLLM, which is not installed here")
                    continue
                # Its cause says the same without the plugin's name, which stands in the row.
                say(index=index, problem=str(error.__cause__ or error))
                continue
            problem = ""
            if not isinstance(obj, type):
                problem = f"{value} is {loading.describe(obj)}, not a class"
            elif not loading.interfaces_of(obj):
                problem = f"{value} derives from neither of vLLM's interfaces"
            facts: dict[str, Any] = {"problem": problem, "interfaces": sorted(loading.interfaces_of(obj))}
            if isinstance(obj, type):
                facts |= {"defined": f"{obj.__module__}:{obj.__qualname__}", "reads": _declared(obj)}
            say(index=index, **facts)


def _declared(cls: type[Any]) -> str | None:
    base = getattr(sys.modules.get("lpkit.portable.base"), "PortableProcessor", None)
    return str(getattr(cls, "history", "")) if base is not None and issubclass(cls, base) else None


def _lacks_vllm(error: BaseException) -> bool:
    """Whether the import failed because there is no vLLM here, which says nothing about a machine that has it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] == "vllm":
            return importlib.util.find_spec("vllm") is None
        cause = cause.__cause__
    return False


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
