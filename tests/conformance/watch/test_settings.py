"""What switches the watcher on, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lpkit_conformance.watch
import pytest
from lpkit_conformance.watch import install
from lpkit_conformance.watch.settings import Settings, SettingsError, read
from lpkit_conformance.watch.switch import OFF, SWITCH


def test_without_the_switch_nothing_is_imported_in_vllms_processes() -> None:
    program = "import sys, lpkit_conformance.watch as w; w.activate(); print(*(m for m in sys.modules if 'lpkit' in m))"
    done = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, text=True, check=True)
    watch = "lpkit_conformance.watch"
    assert sorted(done.stdout.split()) == ["lpkit_conformance", watch, f"{watch}.switch"]


@pytest.mark.parametrize("value", sorted(OFF))
def test_values_that_switch_it_off(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, value)
    monkeypatch.setattr(install, "install", lambda: pytest.fail("it was switched on"))
    lpkit_conformance.watch.activate()


def test_one_is_the_defaults_and_a_file_changes_them(tmp_path: Path) -> None:
    assert read({SWITCH: "1"}) == Settings()
    file = tmp_path / "watch.toml"
    file.write_text('budget = 0.05\nvalues = true\n[arguments]\n"a:B" = ["x"]\n', encoding="utf-8")
    assert read({SWITCH: str(file)}) == Settings(budget=0.05, values=True, arguments={"a:B": ("x",)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budgett = 0.1", "unknown key 'budgett'; did you mean 'budget'?"),
        ("budget = 2", r"budget must be from 0.0 to 1.0, not 2"),
        ("rows = true", "rows must be a int, not True"),
        ("[arguments]\nx = 1", "arguments of 'x' must be a list of strings"),
        ("budget =", "not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "watch.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=message) as told:
        read({SWITCH: str(file)})
    assert str(file) in str(told.value)


def test_a_mistake_in_the_file_leaves_the_server_unwatched_and_running(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWITCH, "/nowhere/watch.toml")
    lpkit_conformance.watch.activate()
    assert "lpkit watch is off" in caplog.text
