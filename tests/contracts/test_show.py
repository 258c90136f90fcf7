"""``lpkit show --json``."""

from __future__ import annotations

import json
from pathlib import Path

from command import FIXTURES
from golden import hold
from lpkit_cli.app import app
from shape import shape
from typer.testing import CliRunner


def test_show(tmp_path: Path, in_process: None) -> None:
    case = ("--case", '{"temperature": 0.5, "extra_args": {"bias": 2.5}}')
    target = f"{FIXTURES / 'plugins.py'}:Portable"
    options = ("--steps", "2", "--compare", "bias=2.5,5", "--out", str(tmp_path / "page.html"), "--json", "-")
    done = CliRunner().invoke(app, ["show", target, *case, *options])
    hold("show", {"exit code": done.exit_code, **shape(json.loads(done.stdout), ("schema", "host", "problem"))})
    assert (tmp_path / "page.html").is_file()


def test_show_trace(tmp_path: Path, in_process: None, monkeypatch) -> None:
    monkeypatch.chdir(FIXTURES)
    saved = FIXTURES.parent / "golden" / "failures" / "program.json"
    done = CliRunner().invoke(app, ["show", "--trace", str(saved), "--out", str(tmp_path / "page.html"), "--json", "-"])
    data = shape(json.loads(done.stdout), ("schema", "host", "code"))
    hold("show_trace", {"exit code": done.exit_code, **data})
