"""What the site is made of fits together: every page is in its navigation, and no address is lost."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
MOVED: dict[str, str] = json.loads((DOCS / "_site" / "moved.json").read_text(encoding="utf-8"))


def part(name: str) -> ModuleType:
    """A module of ``docs/_site``."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_contents_of_one_index_page() -> None:
    contents = part("contents").contents
    indexes = [page for page in PAGES if page.split("/")[-1] == "index"]
    listed = [name for page in indexes for name in contents(page, (DOCS / f"{page}.md").read_text("utf-8"))]
    assert sorted(listed) == sorted(PAGES - {"index"})


def test_the_contents_are_the_links_to_pages_below_in_their_order() -> None:
    text = "[b](b.md) [other](../start/index.md) [b again](b.md#x) ![no](c.md) [a](a.md) [checks](../checks/index.md)"
    assert part("contents").contents("reference/index", text) == ["reference/b", "reference/a", "checks/index"]


@pytest.mark.parametrize("old", MOVED)
def test_an_address_that_moved_leads_to_a_page(old: str) -> None:
    assert MOVED[old] in PAGES
    assert old not in PAGES


def test_pages_of_the_checks_have_the_addresses_that_findings_name() -> None:
    from lpkit_conformance.documentation import DOCUMENTATION, check_page

    address = check_page("LP202").removeprefix(DOCUMENTATION)
    assert address.strip("/") in PAGES  # a folder for each page, as the dirhtml builder makes
    assert address.endswith("/")
