"""The process of an engine, without an engine: calls, answers, what is raised there, and its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lpkit_conformance.checks.engine.asks import Answer, Ask
from lpkit_conformance.engine import process
from lpkit_conformance.engine.losses import location
from lpkit_conformance.engine.process import EngineProcess, ProcessLost, RemoteError
from lpkit_conformance.engine.tiny import EngineError
from pids import ends, runs

FUNCTIONS = """
import os
import subprocess
import sys
import time

import numpy as np

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]


def rows(ask):
    return {ask.request_id: np.arange(3, dtype=np.float32)}


def fails():
    looks_up()


def looks_up():
    raise LookupError("not there")


def refuses():
    from lpkit_conformance.engine.tiny import EngineError

    raise EngineError("no engine")


def exits(code):
    os._exit(code)


def hangs():
    while True:
        time.sleep(0.01)


def forks():
    import multiprocessing

    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0,))
    child.start()
    child.join()
    return child.exitcode


def starts():
    return [subprocess.Popen(SLEEP, start_new_session=away).pid for away in (False, True)]
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineProcess]:
    """Prepared for a vLLM that is a file without anything in it."""
    (tmp_path / "vllm.py").write_text("", encoding="utf-8")
    (tmp_path / "functions.py").write_text(FUNCTIONS, encoding="utf-8")
    with EngineProcess("v1", sys_path=[tmp_path], env={"ONLY_THERE": "1"}) as worker:
        yield worker


def test_calls_are_answered_with_arrays_and_our_own_classes(worker: EngineProcess) -> None:
    (item,) = worker.call("functions:rows", Ask("a", (1, 2))).items()
    assert item[0] == "a"
    np.testing.assert_array_equal(item[1], np.arange(3, dtype=np.float32))
    assert worker.call(Answer, "b") == Answer("b")
    assert worker.call("os:getenv", "ONLY_THERE") == "1"


def test_what_is_raised_there_is_raised_here_with_its_traceback(worker: EngineProcess) -> None:
    with pytest.raises(RemoteError, match="LookupError: not there") as caught:
        worker.call("functions:fails")
    assert (caught.value.kind, caught.value.message) == ("LookupError", "not there")
    line = FUNCTIONS.splitlines().index('    raise LookupError("not there")') + 1
    assert location(caught.value).endswith(f"functions.py:{line}"), "where the plugin raised, not where it was called"
    with pytest.raises(EngineError, match=r"^no engine$"):
        worker.call("functions:refuses")
    assert worker.call("os:getenv", "ONLY_THERE") == "1"


def test_an_exit_is_reported_with_its_code_and_its_line(worker: EngineProcess) -> None:
    with pytest.raises(ProcessLost, match=r"^the process ended with exit code 4$") as caught:
        worker.call("functions:exits", 4)
    assert "in exits" in caught.value.loss.stacks
    with pytest.raises(EngineError):
        worker.call("os:getenv", "ONLY_THERE")


def test_a_call_that_does_not_come_back_is_ended(worker: EngineProcess) -> None:
    worker.call("os:getpid")
    with pytest.raises(ProcessLost, match=r"^the engine's process took longer than 0\.5 s$") as caught:
        worker.call("functions:hangs", timeout=0.5)
    assert "in hangs" in caught.value.loss.stacks


@pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")
def test_a_plugin_may_have_processes_of_its_own_which_end_with_the_engine(worker: EngineProcess) -> None:
    assert worker.call("functions:forks") == 0
    pids = worker.call("functions:starts")
    assert all(map(runs, pids))
    worker.close()
    assert all(map(ends, pids))


def test_an_environment_without_vllm_is_reported_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(process, "import_path", lambda: [entry for entry in sys.path if "site-packages" not in entry])
    with pytest.raises(EngineError, match="vLLM is not installed"):
        EngineProcess("v1")
    assert not list(tmp_path.iterdir())
