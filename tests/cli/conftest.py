"""Runs ``lpkit new`` in this process: a process of its own takes ten times as long and shows nothing more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from lpkit_cli.app import app
from lpkit_cli.scaffold.origin import Origin
from typer.testing import CliRunner, Result

New = Callable[..., Result]


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> New:
    """``new("my-proc", *options, code=0, input="")`` in ``tmp_path``, with the exit code that is expected.

    git has no configuration there; without an option lpkit comes from the index, and no repository is made.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setattr("lpkit_cli.scaffold.origin.own", lambda: Origin("index"))

    def run(*arguments: str, code: int = 0, input: str = "", git: bool = False) -> Result:
        done = CliRunner().invoke(app, ["new", *arguments, *([] if git else ["--no-git"])], input=input)
        assert done.exit_code == code, done.output
        assert "Traceback" not in done.output
        return done

    return run


@pytest.fixture(autouse=True)
def _not_on_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reports independent of the machine that runs the tests."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
