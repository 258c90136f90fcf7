"""The folder of one run of a server: its processes write numbers and traces into it, and the routes read them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

RUN = "LPKIT_WATCH_RUN"
"""Environment variable through which the first process passes the folder to the processes that it starts."""

KEPT_RUNS = 8
_PREFIX = "run-"


def home(directory: str) -> Path:
    """Return the folder for all runs: ``directory``, or else a folder per user in the system's temporary folder."""
    if directory:
        return Path(directory)
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"lpkit-watch-{user}"


def of_this_run(directory: str) -> Path:
    """Return this run's folder. The first process of a server makes it; the others inherit its name.

    Raises:
        OSError: it cannot be made, or the folder in the temporary folder belongs to another user.
    """
    if inherited := os.environ.get(RUN):
        return Path(inherited)
    root = home(directory)
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not directory:
        info = root.lstat()
        if not stat.S_ISDIR(info.st_mode) or (hasattr(os, "getuid") and info.st_uid != os.getuid()):
            raise PermissionError(f"{root} belongs to another user")
    _prune(root)
    path = root / f"{_PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    path.mkdir(exist_ok=True, mode=0o700)
    os.environ[RUN] = str(path)
    return path


def latest(directory: str) -> Path | None:
    """Return the folder of the run that began last."""
    return max(home(directory).glob(f"{_PREFIX}*"), default=None)


def _prune(root: Path) -> None:
    for old in sorted(root.glob(f"{_PREFIX}*"))[: -KEPT_RUNS + 1]:
        if not _alive(old.name.rpartition("-")[2]):
            shutil.rmtree(old, ignore_errors=True)


def _alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        return True
    return True


def used(path: Path) -> int:
    """Return the bytes of all files in the folder."""
    return sum(file.stat().st_size for file in path.iterdir() if file.is_file())


def write(file: Path, text: str) -> None:
    """Write a file that no reader sees half of. Raises OSError."""
    unfinished = file.with_suffix(".part")
    try:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
        unfinished.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def process_name(engine: int) -> str:
    """Return this process's id, with the number of an engine behind it unless it is the process's first."""
    return f"{os.getpid()}.{engine}" if engine else str(os.getpid())


def write_numbers(path: Path, numbers: dict[str, Any], engine: int = 0) -> None:
    """Write the numbers of an engine of this process. Raises OSError."""
    write(path / f"process-{process_name(engine)}.json", json.dumps(numbers))


def read_numbers(path: Path) -> dict[str, dict[str, Any]]:
    """Return the numbers of every engine of a run, by :func:`process_name`, without files that cannot be read."""
    numbers = {}
    for file in sorted(path.glob("process-*.json")):
        with contextlib.suppress(OSError, ValueError):
            numbers[file.stem.partition("-")[2]] = json.loads(file.read_text(encoding="utf-8"))
    return numbers
