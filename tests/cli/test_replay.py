"""``lpkit check`` saves what ``lpkit replay`` runs again."""

from __future__ import annotations

from command import write_suspect
from lpkit_cli.app import app
from typer.testing import CliRunner

OPTIONS = ("--case", '{"extra_args": {"bias": 2.5}}', "--select", "LP202")
FILE = ".lpkit/failures/plugin.py_Plugin-LP202-v1.json"


def run(*arguments: str):
    done = CliRunner().invoke(app, arguments)
    assert "Traceback" not in done.output
    return done


def test_a_failure_is_saved_named_and_replayed_until_it_is_fixed(in_process, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_suspect(tmp_path / "plugin.py", "ForgetsToReplace")
    checked = run("check", "plugin.py:Plugin", *OPTIONS)
    assert checked.exit_code == 1
    assert f"    replay      lpkit replay {FILE}\n" in checked.stdout
    assert "    batch       step  row 0\n                1     a\n                2     >(c)<\n" in checked.stdout

    failing = run("replay", FILE)
    assert failing.exit_code == 1
    assert failing.stdout.splitlines()[-1] == "STILL FAILING  LP202[v1]"
    evidence = [line for line in checked.stdout.splitlines() if line.startswith("    ") and "replay " not in line]
    assert evidence == [line for line in failing.stdout.splitlines() if line.startswith("    ")]

    write_suspect(tmp_path / "plugin.py", "Good")
    fixed = run("replay", FILE)
    assert fixed.exit_code == 0
    assert "FIXED  LP202[v1] passes these operations now" in fixed.stdout


def test_failures_go_where_the_user_wants(in_process, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_suspect(tmp_path / "plugin.py", "ForgetsToReplace")
    done = run("check", "plugin.py:Plugin", *OPTIONS, "--save", "my failures")
    assert 'lpkit replay "my failures/plugin.py_Plugin-LP202-v1.json"' in done.stdout
    assert [file.name for file in (tmp_path / "my failures").iterdir()] == ["plugin.py_Plugin-LP202-v1.json"]
    assert not (tmp_path / ".lpkit").exists()


def test_a_folder_that_cannot_be_written_costs_the_file_and_nothing_else(in_process, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_suspect(tmp_path / "plugin.py", "ForgetsToReplace")
    (tmp_path / ".lpkit").touch()
    done = run("check", "plugin.py:Plugin", *OPTIONS)
    assert done.exit_code == 1
    assert "LP202" in done.stdout
    assert "lpkit replay" not in done.stdout


def test_a_folder_that_cannot_be_made_is_reported_if_it_was_asked_for(in_process, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_suspect(tmp_path / "plugin.py", "ForgetsToReplace")
    (tmp_path / "file").touch()
    done = run("check", "plugin.py:Plugin", *OPTIONS, "--save", "file/below")
    assert done.exit_code == 2
    assert "cannot write to file" in done.stderr
