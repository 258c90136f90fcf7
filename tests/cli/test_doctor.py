"""``lpkit doctor`` as a command: exit codes, output, and what it must not do."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from command import SOURCES, lpkit
from site_folder import Site

ONLY_V1 = "from vllm.v1.sample.logits_processor import LogitsProcessor\nclass P(LogitsProcessor): ...\n"


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``lpkit doctor`` as a command, ``site`` first on the path."""
    return lpkit("doctor", *arguments, cwd=site.parent, PYTHONPATH=os.pathsep.join(map(str, (site, *SOURCES))))


@pytest.fixture
def place(tmp_path: Path) -> Site:
    """A V1-only plugin, in a package that must not be imported."""
    site = Site(tmp_path / "site")
    site.write("loud/__init__.py", f"import pathlib\npathlib.Path({str(tmp_path / 'imported')!r}).touch()\n")
    site.write("loud/mod.py", ONLY_V1)
    site.dist("loud-dist", "4.2", "loud = loud.mod:P")
    return site


@pytest.fixture
def site(place: Site) -> Path:
    return place.folder


def test_something_that_would_go_wrong_is_exit_1_with_its_remedy(site: Path) -> None:
    ran = run(site, "--vllm", "0.33.0")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "error  loud: vLLM 0.33.0 on its V2 runner does not start  [blocks-start]" in ran.stdout
    assert "pip uninstall loud-dist" in ran.stdout
    assert "1 problem found." in ran.stdout
    assert not (site.parent / "imported").exists()


def test_notes_are_exit_0(site: Path) -> None:
    ran = run(site, "--vllm", "v0.21.0")
    assert ran.returncode == 0
    assert "note  loud:" in ran.stdout
    assert "No problems found." in ran.stdout


@pytest.mark.parametrize("release", ["new", "0", "0.33.0; rm"])
def test_a_release_that_is_none_could_not_run(site: Path, release: str) -> None:
    ran = run(site, "--vllm", release)
    assert ran.returncode == 2
    assert "0.33.0, not" in ran.stderr


@pytest.mark.parametrize("body", ["raise SystemExit(9)", "x = 1"])
def test_a_strangers_module_before_ours_is_reported_instead_of_failing(site: Path, body: str) -> None:
    (site / "lpkit.py").write_text(body)
    ran = run(site)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "[lpkit-shadowed]" in ran.stdout
    assert "Nothing else was checked." in ran.stdout
    document = json.loads(run(site, "--json").stdout)
    assert (document["ok"], [finding["code"] for finding in document["findings"]]) == (False, ["lpkit-shadowed"])


def test_the_same_words_about_several_plugins_are_said_once(place: Site) -> None:
    place.dist("loud-dist", "4.2", "one = loud.mod:P\ntwo = loud.more:P")
    place.write("loud/more.py", ONLY_V1)
    ran = run(place.folder, "--vllm", "0.21.0")
    assert "note  one, two: with speculative decoding" in ran.stdout
    assert ran.stdout.count("with speculative decoding,") == 1


def test_terminal_escapes_in_metadata_are_not_printed(place: Site) -> None:
    place.dist("loud-dist", "4.2", "a\x1b[2J = gone\x07:P")
    ran = run(place.folder)
    assert "gone" in ran.stdout
    assert not {"\x1b", "\x07"} & set(ran.stdout)
