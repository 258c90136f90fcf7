"""``lpkit doctor`` as a command: exit codes, output, and what it must not do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lpkit.loading import GROUP

HEAVY = {"torch", "vllm", "numpy", "cookiecutter", "pytest", "rich"}
ONLY_V1 = "from vllm.v1.sample.logits_processor import LogitsProcessor\nclass P(LogitsProcessor): ...\n"


def run(site: Path, *arguments: str, after: str = "") -> subprocess.CompletedProcess[str]:
    """``lpkit doctor`` as a command, ``site`` first on the path."""
    code = (
        f"import sys; sys.path[:] = {[str(site), *sys.path]!r}; sys.argv[0] = 'lpkit'\n"
        f"from lpkit_cli.app import main\ntry: main()\nfinally:\n    {after or 'pass'}\n"
    )
    command = [sys.executable, "-c", code, "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=site.parent, check=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A V1-only plugin, in a package that must not be imported."""
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    folder = tmp_path / "site"
    (folder / "loud").mkdir(parents=True)
    mark = tmp_path / "imported"
    (folder / "loud" / "__init__.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    (folder / "loud" / "mod.py").write_text(ONLY_V1)
    info = folder / "loud_dist-4.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud-dist\nVersion: 4.2\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nloud\x1b[2J = loud.mod:P\n".replace("\x1b[2J", ""))
    return folder


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


def test_options_change_what_is_judged(site: Path) -> None:
    ran = run(site, "--vllm", "0.21.0", "--spec-decode", "--pass", "loud.mod:P", "--no-async-scheduling", "--json")
    document = json.loads(ran.stdout)
    assert (ran.returncode, document["schema"]) == (1, "lpkit.doctor/1")
    assert {finding["code"] for finding in document["findings"] if finding["level"] == "error"} == {
        "inactive-with-drafts",
        "draft-refusal",
        "runs-twice",
    }


def test_load_imports(site: Path) -> None:
    run(site, "--load")
    assert (site.parent / "imported").exists()


@pytest.mark.parametrize("release", ["new", "0", "0.33.0; rm"])
def test_a_release_that_is_none_could_not_run(site: Path, release: str) -> None:
    ran = run(site, "--vllm", release)
    assert ran.returncode == 2
    assert "0.33.0, not" in ran.stderr


def test_it_loads_nothing_heavy(site: Path) -> None:
    ran = run(site, after=f"print(*{HEAVY!r} & set(sys.modules), file=sys.stderr)")
    assert ran.stderr.strip() == ""


@pytest.mark.parametrize("body", ["raise SystemExit(9)", "x = 1"])
def test_a_strangers_module_before_ours_is_told_instead_of_failing(site: Path, body: str) -> None:
    (site / "lpkit.py").write_text(body)
    ran = run(site)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "[lpkit-shadowed]" in ran.stdout
    assert "Nothing else was checked." in ran.stdout
    document = json.loads(run(site, "--json").stdout)
    assert (document["ok"], [finding["code"] for finding in document["findings"]]) == (False, ["lpkit-shadowed"])


def test_the_same_words_about_several_plugins_are_said_once(site: Path) -> None:
    (site / "loud_dist-4.2.dist-info" / "entry_points.txt").write_text(
        f"[{GROUP}]\none = loud.mod:P\ntwo = loud.more:P\n"
    )
    (site / "loud" / "more.py").write_text(ONLY_V1)
    ran = run(site, "--vllm", "0.21.0")
    assert "note  one, two: with speculative decoding" in ran.stdout
    assert ran.stdout.count("with speculative decoding,") == 1


def test_terminal_escapes_in_metadata_are_not_printed(site: Path) -> None:
    (site / "loud_dist-4.2.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\na\x1b[2J = gone\x07:P\n")
    ran = run(site)
    assert "gone" in ran.stdout
    assert not {"\x1b", "\x07"} & set(ran.stdout)
