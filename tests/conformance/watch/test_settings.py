"""LPKIT_WATCH and its file switch the watcher on, and a mistake in them leaves the server unwatched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from lpkit_conformance.watch import OFF, SWITCH, activate, install
from lpkit_conformance.watch.run_directory import RUN
from lpkit_conformance.watch.settings import WatchSettings, WatchSettingsError, read


def test_without_the_switch_nothing_is_imported_in_vllms_processes() -> None:
    program = "import sys, lpkit_conformance.watch as w; w.activate(); print(*(m for m in sys.modules if 'lpkit' in m))"
    done = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, text=True, check=True)
    watch = "lpkit_conformance.watch"
    assert sorted(done.stdout.split()) == ["lpkit_conformance", watch]


def test_values_that_switch_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "install", lambda value: pytest.fail("it was switched on"))
    for value in OFF:
        monkeypatch.setenv(SWITCH, value)
        activate()


def test_one_is_the_defaults_and_a_file_changes_them(tmp_path: Path) -> None:
    assert read("1") == WatchSettings()
    file = tmp_path / "watch.toml"
    file.write_text('budget = 0.05\nvalues = true\n[arguments]\n"a:B" = ["x"]\n', encoding="utf-8")
    assert read(str(file)) == WatchSettings(budget=0.05, values=True, arguments={"a:B": ["x"]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budgett = 0.1", "unknown key 'budgett'; did you mean 'budget'?"),
        ("budget = 2", "budget: Input should be less than or equal to 1, not 2"),
        ("rows = true", "rows: Input should be a valid integer, not True"),
        ("[arguments]\nx = 1", "arguments.x: Input should be a valid list, not 1"),
        ("budget =", "not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "watch.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(WatchSettingsError, match=message) as caught:
        read(str(file))
    assert str(file) in str(caught.value)


def test_a_mistake_in_the_file_leaves_the_server_unwatched_and_running(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWITCH, "/nowhere/watch.toml")
    activate()
    assert "lpkit watch is off" in caplog.text


def test_an_error_of_the_watcher_leaves_the_server_unwatched_and_running(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setattr(install, "install", lambda value: {}[value])
    activate()
    assert "lpkit watch is off; serving is unaffected" in caplog.text


@pytest.mark.parametrize(("text", "names"), [("", ["other", "lpkit_watch"]), ("routes = false", ["other"])])
def test_the_routes_join_vllms_endpoint_plugins_unless_the_settings_leave_them_out(
    text: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = ModuleType("vllm.plugins")
    other = SimpleNamespace(name="other")
    plugins.load_endpoint_plugins = lambda supported_tasks: [other]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.plugins", plugins)
    monkeypatch.setenv(RUN, "")
    file = tmp_path / "watch.toml"
    file.write_text(f"directory = {json.dumps(str(tmp_path))}\n{text}\n", encoding="utf-8")
    install.install(str(file))
    assert [plugin.name for plugin in plugins.load_endpoint_plugins(("generate",))] == names
