"""The site fits together: every page is in its navigation, and links between pages stay within the build."""

from __future__ import annotations

from lpkit_conformance.results import DOCUMENTATION, check_page
from site_sources import module, sources


def names() -> set[str]:
    """Every page of the site, as Sphinx names it."""
    return {name.removesuffix(".md") for name in sources() if name.endswith(".md")}


def test_every_page_is_in_the_contents_of_one_index_page() -> None:
    site, pages = module("_site/contents.py"), names()
    texts = {page: site.localized(sources()[f"{page}.md"], pages) for page in pages if page.split("/")[-1] == "index"}
    listed = [name for page, text in texts.items() for name in site.contents(page, text)]
    assert sorted(listed) == sorted(pages - {"index"})


def test_the_contents_are_the_links_to_pages_below_in_their_order() -> None:
    text = "[b](b.md) [other](../start/index.md) [b again](b.md#x) ![no](c.md) [a](a.md) [checks](/checks/index.md)"
    contents = module("_site/contents.py").contents
    assert contents("reference/index", text) == ["reference/b", "reference/a", "checks/index"]


def test_a_link_to_the_published_site_leads_to_this_builds_page() -> None:
    text = (
        f"[a]({DOCUMENTATION}checks/#lp2) [b]({check_page('LP202')}) [c]({DOCUMENTATION}nowhere/) [d](https://vllm.ai/)"
    )
    expected = f"[a](/checks/index.md#lp2) [b](/checks/LP202.md) [c]({DOCUMENTATION}nowhere/) [d](https://vllm.ai/)"
    assert module("_site/contents.py").localized(text, names()) == expected


def test_pages_of_the_checks_have_the_addresses_that_findings_name() -> None:
    address = check_page("LP202").removeprefix(DOCUMENTATION)
    assert address.strip("/") in names()  # a folder for each page, as the dirhtml builder makes
    assert address.endswith("/")
