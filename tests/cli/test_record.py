"""``lpkit record`` where there is no engine: every mistake is one line and exit code 2."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from lpkit_cli.app import app
from lpkit_conformance import traces
from typer.testing import CliRunner, Result


def _record(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["record", *arguments])


def test_list_shows_every_workload() -> None:
    everything = _record("--list")
    assert everything.exit_code == 0
    assert [line.split()[0] for line in everything.output.splitlines()] == sorted(
        traces.names(), key=lambda name: everything.output.index(name)
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a workload, or pass --all; --list shows them"),
        (["curn"], "unknown workload 'curn'; there are v1_steady"),
    ],
)
def test_a_workload_that_is_not_there_is_refused(arguments: list[str], said: str) -> None:
    done = _record(*arguments)
    assert done.exit_code == 2
    assert done.output.startswith(f"lpkit record: {said}")
    assert len(done.output.splitlines()) == 1


def test_an_output_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = _record("v1_churn", "-o", str(tmp_path / "file"))
    assert done.exit_code == 2
    assert done.output.startswith("lpkit record: ")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_it_says_so(tmp_path: Path) -> None:
    done = _record("v1_churn", "-o", str(tmp_path))
    assert (done.exit_code, done.output) == (2, "lpkit record: vLLM is not installed in this Python\n")
    assert not list(tmp_path.iterdir())


def test_a_broken_vllm_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "vllm.py").write_text("raise OSError('libcuda.so.1 is missing\\nand more')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(broken))
    done = _record("v1_churn", "-o", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert done.output == "lpkit record: vLLM cannot be imported: OSError: libcuda.so.1 is missing and more\n"
