"""Runs ``lpkit new`` in this process: a process of its own takes ten times as long and shows nothing more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lpkit_cli.app import app
from typer.testing import CliRunner, Result

New = Callable[..., Result]


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> New:
    """``new("my-proc", *options, code=0)`` in ``tmp_path``, with the exit code that is expected."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(app, ["new", *arguments])
        assert done.exit_code == code, done.output
        assert "Traceback" not in done.output
        return done

    return run


@pytest.fixture(autouse=True)
def _not_on_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports look alike wherever the tests run."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
