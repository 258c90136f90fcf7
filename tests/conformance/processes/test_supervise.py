"""The protocol: the parent always knows the child's progress and how it was lost, and ends all of its processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.processes import supervise
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
    assert said("tells", {"items": [1, "two", None]}) == [{"event": "item", "value": v} for v in (1, "two", None)]


def test_jobs_may_follow_one_another_and_come_late() -> None:
    with Child("entries:echoes") as child:
        for job in ("first", ["second"]):
            child.send(job, SECONDS)
            assert child.news(SECONDS) == {"event": "echo", "value": job}
        child.send_no_more()
        assert child.news(SECONDS) is None


def test_the_plugin_finds_standard_input_empty() -> None:
    assert said("reads_input", "the job") == [{"event": "read", "found": "", "job": "the job"}]


def test_nothing_of_the_current_folder_is_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "only_here"):
        (tmp_path / f"{name}.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (event,) = said("imports", ["json", "only_here"])
    assert str(tmp_path) not in event["found"]["json"]
    assert not event["found"]["only_here"]


def test_the_plugins_folders_are_importable_where_this_process_imports_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (event,) = said("imports", ["only_here"])
    assert str(tmp_path) in event["found"]["only_here"]


def test_an_exit_is_told_with_its_code_its_place_and_the_last_line_printed() -> None:
    found = loss("exits", 7)
    assert (found.kind, found.what) == ("exit", "the process ended with exit code 7")
    assert found.did == "ended the process with exit code 7"
    assert found.last_words == "; its last output: last words"
    assert "in exits" in found.stacks


def test_an_exception_is_an_exit_and_its_text_the_last_line() -> None:
    found = loss("raises")
    assert (found.kind, found.last_line) == ("exit", "ValueError: nobody catches this")


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_crash_is_told_by_its_signal_and_where_it_was() -> None:
    found = loss("crashes")
    assert found.what == "the process was ended by SIGSEGV"
    assert "in crashes" in found.stacks


def test_a_hang_is_told_with_the_line() -> None:
    begun = time.monotonic()
    found = loss("hangs", seconds=1.0)
    line = 1 + Path(__file__).with_name("entries.py").read_text(encoding="utf-8").splitlines().index(
        "        time.sleep(0.01)  # here"
    )
    assert (found.kind, found.what) == ("hang", "the plugin did not return within 1 s")
    assert found.did == "took longer than 1 s"
    assert f'entries.py", line {line} in hangs' in found.stacks
    assert time.monotonic() - begun < SECONDS


def test_a_call_that_begins_or_returns_is_a_sign_of_life_and_a_hang_is_told_with_the_call() -> None:
    found = loss("calls_for_long_then_hangs", seconds=0.6)
    assert (found.kind, found.what) == ("hang", "last did not return within 0.6 s")
    assert found.calls == "last"
    assert "in calls_for_long_then_hangs" in found.stacks


def test_imports_are_signs_of_life_but_not_for_ever(tmp_path: Path) -> None:
    _, event = said("imports_for_long", 0.3, seconds=0.6)
    assert event["seconds"] > 0.6
    assert loss("imports_for_ever", seconds=0.4).what == "the plugin did not return within 0.4 s"


def test_who_waits_for_a_child_of_its_own_has_the_limit_of_that_wait() -> None:
    assert [event["event"] for event in said("waits_for_a_child", None, seconds=0.5)] == ["ready", "waited"]


def test_starting_may_take_longer_than_the_limit() -> None:
    assert len(said("tells", {"items": [1]}, seconds=0.01)) == 1


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
    assert caught.value.cause == "printing or logging per row or per token"


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


def test_a_function_that_is_not_there_is_a_loss() -> None:
    assert loss("nobody").last_line.startswith("AttributeError")


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
        child.send("hang" if ending == "interrupt" else ending, 3.0)
        for event in child.events(3.0):
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
        event = child.news(SECONDS)
        assert event is not None and runs(event["pids"][0])
    assert ends(event["pids"][0])


def test_a_child_can_be_ended_twice_and_after_it_has_ended() -> None:
    with Child("entries:exits") as child:
        child.send(0, SECONDS)
        with pytest.raises(Lost):
            child.news(SECONDS)
    child.end()
    child.send("too late", SECONDS)
    with pytest.raises(Lost, match="exit code 0"):
        child.news(SECONDS)
