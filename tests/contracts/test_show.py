"""``lpkit show --json``."""

from __future__ import annotations

import json

from command import FIXTURES, lpkit
from golden import hold
from shape import shape


def test_show(tmp_path) -> None:
    case = ("--case", '{"temperature": 0.5, "extra_args": {"bias": 2.5}}')
    target = f"{FIXTURES / 'plugins.py'}:Portable"
    done = lpkit(
        "show",
        target,
        *case,
        "--steps",
        "2",
        "--compare",
        "bias=2.5,5",
        "--out",
        "page.html",
        "--json",
        "-",
        cwd=tmp_path,
    )
    hold("show", {"exit code": done.returncode, **shape(json.loads(done.stdout), ("schema", "host", "problem"))})
    assert (tmp_path / "page.html").is_file()


def test_show_trace(tmp_path) -> None:
    saved = FIXTURES.parent / "golden" / "failures" / "program.json"
    done = lpkit("show", "--trace", str(saved), "--out", str(tmp_path / "page.html"), "--json", "-", cwd=FIXTURES)
    data = shape(json.loads(done.stdout), ("schema", "host", "code"))
    hold("show_trace", {"exit code": done.returncode, **data})
