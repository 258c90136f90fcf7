"""The tutorial is followed command by command, and the output is as shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from markdown_blocks import blocks
from walk import MARKS, Walk

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "start" / "tutorial.md"
BLOCKS = blocks(PAGE)


def test_what_is_not_run_needs_vllm_or_the_network() -> None:
    marked = [block for block in BLOCKS if block.mark == "not run"]
    assert marked
    for block in marked:
        assert any(word in block.value for word in ("vllm", "pip", "curl")), f"line {block.line}: {block.value}"
    assert len([block for block in BLOCKS if block.language == "bash" and block not in marked]) >= 6


def test_the_failure_in_the_readme_is_the_tutorials() -> None:
    (shown,) = (block.text for block in blocks(ROOT / "README.md") if block.language == "text")
    assert shown.startswith("FAIL LP201")
    assert any(shown in block.text for block in BLOCKS)


def test_every_mark_is_one_that_the_walk_knows() -> None:
    assert {block.mark for block in BLOCKS} <= MARKS


@pytest.mark.skipif(shutil.which("bash") is None, reason="the tutorial's commands are for bash")
@pytest.mark.broad
@pytest.mark.parametrize("every_check", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_the_tutorial_works_as_written(every_check: bool, selected: list[str], tmp_path: Path) -> None:
    Walk(tmp_path, PAGE, () if every_check else selected).through(BLOCKS)
