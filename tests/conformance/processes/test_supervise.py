"""The protocol: the parent always knows the child's progress and how it was lost, and ends all of its processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.processes import supervise, tree
from lpkit_conformance.processes.supervise import Child, Event, Lost
from pids import ends, runs

SECONDS = 20.0
LINUX = pytest.mark.skipif(not Path("/proc/self").exists(), reason="without /proc only the process group is ended")


@pytest.fixture(autouse=True)
def _entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def said(entry: str, job: Any, seconds: float = SECONDS) -> list[Event]:
    with Child(f"entries:{entry}") as child:
        child.send(job, seconds)
        return list(child.events(seconds))


def loss(entry: str, job: Any = None, seconds: float = SECONDS) -> Lost:
    with pytest.raises(Lost) as caught:
        said(entry, job, seconds)
    return caught.value


def test_events_come_in_order_and_the_end_is_not_one_of_them() -> None:
    assert said("tells", [1, "two", None]) == [{"event": "item", "value": v} for v in (1, "two", None)]


def test_jobs_follow_one_another_and_each_has_its_answer() -> None:
    others: list[Event] = []
    with Child("entries:echoes") as child:
        assert [child.call(job, SECONDS, others.append) for job in ("first", ["second"], None)] == [
            "first",
            ["second"],
            None,
        ]
        child.end()
        with pytest.raises(Lost, match="ended by SIGKILL"):
            child.call("too late", SECONDS)
    assert others == [{"event": "heard"}] * 3


def test_the_plugin_finds_standard_input_empty() -> None:
    assert said("reads_input", "the job") == [{"event": "read", "input": "", "job": "the job"}]


def test_modules_come_from_where_this_process_imports_them_but_not_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, plugins = tmp_path / "current", tmp_path / "plugins"
    for folder, name in ((current, "json"), (current, "only_here"), (plugins, "only_there")):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(current)
    monkeypatch.setattr(sys, "path", ["", str(plugins), *sys.path])
    (event,) = said("imports", ["json", "only_here", "only_there"])
    assert str(current) not in event["modules"]["json"]
    assert not event["modules"]["only_here"]
    assert str(plugins) in event["modules"]["only_there"]


HERE = 1 + Path(__file__).with_name("entries.py").read_text(encoding="utf-8").splitlines().index(
    "        time.sleep(0.01)  # here"
)


@pytest.mark.parametrize(
    ("entry", "job", "seconds", "kind", "what", "did", "last_line", "stacks"),
    [
        ("exits", 7, 20, "exit", "the process ended with exit code 7", "ended the process with", "last words", "exits"),
        ("raises", None, 20, "exit", "the process ended with exit code 1", "", "ValueError: nobody catches this", ""),
        ("nobody", None, 20, "exit", "the process ended with exit code 1", "", "AttributeError", ""),
        pytest.param(
            *("crashes", None, 20, "exit", "the process was ended by SIGSEGV", "ended the process with SIGSEGV"),
            *("", "crashes"),
            marks=pytest.mark.skipif(os.name == "nt", reason="signals"),
        ),
        ("hangs", None, 1, "hang", "the plugin did not return within 1 s", "took longer than 1 s", "", f"line {HERE}"),
        ("calls_then_hangs", None, 0.6, "hang", "last did not return within 0.6 s", "", "", "calls_then_hangs"),
        ("prints_for_ever", None, 20, "output", "the plugin printed more than 8 MiB", "printed more than", "zzz", ""),
        ("imports_for_ever", None, 0.4, "hang", "the plugin did not return within 0.4 s", "", "", ""),
    ],
)
def test_a_loss_is_reported_with_its_kind_its_place_and_the_last_line_printed(
    entry: str, job: Any, seconds: float, kind: str, what: str, did: str, last_line: str, stacks: str
) -> None:
    begun = time.monotonic()
    lost = loss(entry, job, seconds)
    assert (lost.kind, lost.what) == (kind, what)
    assert lost.did.startswith(did)
    assert lost.last_line.startswith(last_line)
    assert lost.last_words == (f"; its last output: {lost.last_line[:200]}" if lost.last_line else "")
    assert stacks in lost.stacks
    assert lost.calls == ("last" if entry == "calls_then_hangs" else "")
    assert time.monotonic() - begun < SECONDS


def test_time_in_which_other_processes_ran_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.monotonic()
    monkeypatch.setattr(tree, "waited", lambda pid: min(time.monotonic() - begun, 1.0))
    assert loss("hangs", None, 0.3).what == "the plugin did not return within 0.3 s"
    assert time.monotonic() - begun > 1.0


def test_imports_are_signs_of_life() -> None:
    _, event = said("imports_for_long", 0.3, seconds=0.6)
    assert event["seconds"] > 0.6


def test_who_waits_for_a_child_of_its_own_has_the_limit_of_that_wait() -> None:
    assert [event["event"] for event in said("waits_for_a_child", None, seconds=0.5)] == ["ready", "waited"]


def test_starting_may_take_longer_than_the_limit() -> None:
    assert len(said("tells", [1], seconds=0.05)) == 1


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_what_was_slow_and_came_back_is_not_blamed_for_what_comes_later() -> None:
    found = loss("slow_then_exits", seconds=1.0)
    assert found.what == "the process was ended by SIGKILL"
    assert not found.stacks


def test_output_is_limited_from_one_event_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "MOST_OUTPUT", 2**20)
    half = 2**19 + 2**18
    assert [event["count"] for event in said("prints", [half, half, half])] == [half] * 3
    seen: list[int] = []
    with Child("entries:prints") as child, pytest.raises(Lost) as caught:
        child.send([half, 2 * half, 0, 0, 0], SECONDS)
        seen.extend(event["count"] for event in child.events(SECONDS))
    assert caught.value.what == "the plugin printed more than 1 MiB"
    assert caught.value.kind == "output"


def test_output_is_counted_in_the_interval_that_printed_it_however_late_that_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "MOST_OUTPUT", 2**20)
    monkeypatch.setattr(supervise, "POLL_SECONDS", 1.0)
    seen: list[int] = []
    with Child("entries:prints") as child, pytest.raises(Lost):
        child.send([1, 2**21, 2, 3], SECONDS)
        for event in child.events(SECONDS):
            seen.append(event["count"])
    assert seen == [1, 2**21]


def test_output_goes_to_the_file_that_is_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n", encoding="utf-8")
    with Child("entries:prints", output=log) as child:
        child.send([3], SECONDS)
        list(child.events(SECONDS))
    assert log.read_text(encoding="utf-8") == "before\nxxx\n"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    assert not list(tmp_path.iterdir())


@LINUX
@pytest.mark.parametrize("ending", ["return", "exit", "hang", "interrupt"])
def test_whatever_a_child_has_started_ends_with_it(ending: str, folders: Path) -> None:
    pids: list[int] = []
    with pytest.raises((Lost, KeyboardInterrupt, StopIteration)), Child("entries:starts_others") as child:
        child.send("hang" if ending == "interrupt" else ending, 1.0)
        for event in child.events(1.0):
            pids = event["pids"]
            assert all(map(runs, pids))
            if ending == "interrupt":
                raise KeyboardInterrupt
        raise StopIteration
    assert len(pids) == 3
    assert not any(map(runs, [child.pid, *pids]))


@LINUX
def test_a_childs_child_ends_with_it_and_leaves_no_folder(folders: Path) -> None:
    with Child("entries:starts_a_child") as child:
        child.send({}, SECONDS)
        pid = next(child.events(SECONDS))["pid"]
        assert runs(pid)
    assert ends(pid)


def test_a_child_can_be_ended_twice_and_after_it_has_ended() -> None:
    with Child("entries:exits") as child, pytest.raises(Lost):
        child.call(0, SECONDS)
    child.end()
    with pytest.raises(Lost, match="exit code 0"):
        child.call("too late", SECONDS)
