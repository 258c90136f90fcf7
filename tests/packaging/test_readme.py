"""The README's processor is real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.broad
def test_the_readmes_processor_is_conformant(installed, selected, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    (tmp_path / "min_p.py").write_text(code, encoding="utf-8")
    case = '{"extra_args": {"min_p": 0.3}}'
    done = installed.lpkit("check", "min_p.py:MinP", "--case", case, *selected, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_says_to_install_the_other_lpkit() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        assert "pip install lpkit" not in page.read_text(encoding="utf-8"), page
