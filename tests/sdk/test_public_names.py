"""``help()`` of the base classes shows the documented names and vLLM's own interface, and no others."""

from __future__ import annotations

from pathlib import Path

import lpkit
import pytest
from lpkit import v1, v2

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "sdk.md").read_text("utf-8")


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("cls", [lpkit.LogitsProcessor, lpkit.AdapterLogitsProcessor, lpkit.Bridged])
def test_a_base_class_shows_only_what_the_page_describes(cls: type) -> None:
    ours = public(cls) - public(v1.LogitsProcessor) - public(v2.LogitsProcessor)
    assert [name for name in sorted(ours) if f"`{name}" not in PAGE and f"`self.{name}" not in PAGE] == []
