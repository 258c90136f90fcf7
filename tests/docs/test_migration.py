"""The migration guide is followed: its files are written, its commands run, and their output is as shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from markdown_blocks import blocks
from walk import MARKS, Walk

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "migration.md"
BLOCKS = blocks(PAGE)
SECTIONS = list(dict.fromkeys(block.section for block in BLOCKS))


def test_every_mark_is_one_that_the_walk_knows_and_nothing_is_left_out() -> None:
    assert {block.mark for block in BLOCKS} <= MARKS - {"not run"}


def test_both_ways_are_shown_for_each_kind() -> None:
    written = {block.value for block in BLOCKS if block.mark == "file"}
    for kind in ("callable", "target", "tired"):
        assert {f"{way}_{kind}.py" for way in ("old", "bridged", "portable")} <= written


@pytest.mark.skipif(shutil.which("bash") is None, reason="the commands are for bash")
@pytest.mark.broad
@pytest.mark.parametrize("every_check", [False, pytest.param(True, marks=pytest.mark.deep)])
@pytest.mark.parametrize("section", SECTIONS)
def test_the_guide_works_as_written(section: str, every_check: bool, selected: list[str], tmp_path: Path) -> None:
    of_it = [block for block in BLOCKS if block.section == section]
    shown = ["--select", "LP104"] if any("LP104" in block.text for block in of_it) else []
    walk = Walk(tmp_path, PAGE, () if every_check else [*selected, *shown])
    for block in BLOCKS:  # a later section uses files of an earlier one
        if block.mark == "file":
            walk.write(block)
    walk.through(of_it)
