"""A reader of the site gets around in it: at both widths, in both colour schemes."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest
from playwright.sync_api import Page, expect
from site_reader import SITE, VIEWPORTS, Site

PAGES = sorted(path.parent.relative_to(SITE).as_posix() for path in SITE.rglob("index.html"))
DARK = ["", "checks/LP202", "reference/cli", "reference/api/lpkit", "explanation/concepts", "start/tutorial"]
"""A page of each kind, looked at in the dark too."""

READ = """async () => {
  const images = [...document.images];
  images.forEach(image => { image.loading = 'eager' });
  await Promise.all(images.map(image => image.decode().catch(() => null)));
  return {
    links: [...document.querySelectorAll('a[href]')].map(link => link.href),
    anchors: [...document.querySelectorAll('[id]')].map(element => element.id),
    pictures: images.map(image => [image.src, image.naturalWidth]),
    background: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
  };
}"""

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def read(page: Page, address: str, name: str) -> dict[str, Any]:
    page.goto(address + ("" if name == "." else f"{name}/"))
    found: dict[str, Any] = page.evaluate(READ)
    return found


def test_every_link_leads_to_a_page_and_an_anchor_that_exist_and_no_page_is_wider_than_its_window(site: Site) -> None:
    page = site.open().new_page()
    pages, too_wide = {}, []
    for name in PAGES:
        pages["" if name == "." else f"{name}/"] = read(page, site.address, name)
        for width, viewport in VIEWPORTS.items():
            page.set_viewport_size(viewport)
            if over := page.evaluate(OVERFLOW):
                too_wide.append(f"{name} on a {width}: {over} px")
    assert len(pages) > 100
    assert not too_wide
    links = {(name, link) for name, found in pages.items() for link in found["links"] if link.startswith(site.address)}
    broken = []
    for name, link in sorted(links):
        path, anchor = urldefrag(link.removeprefix(site.address))
        path = path.partition("?")[0].removesuffix("index.html")
        if path not in pages and not (SITE / path).is_file():
            broken.append(f"{name}: {link}")
        elif anchor and path in pages and unquote(anchor) not in pages[path]["anchors"]:
            broken.append(f"{name}: {link}: no such anchor")
    pictures = [(name, *picture) for name, found in pages.items() for picture in found["pictures"]]
    anchors = {link for _, link in links if "#" in link}
    print(f"\n{len(pages)} pages, {len(links)} links, {len(anchors)} anchors, {len(pictures)} pictures")
    assert not broken
    assert len(pictures) > 15
    assert not [f"{name}: {source}" for name, source, width in pictures if not width]


@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_pages_follow_the_readers_colour_scheme(site: Site, width: str) -> None:
    light, dark = site.open(width).new_page(), site.open(width, "dark").new_page()
    for name in DARK:
        by_day, by_night = (read(page, site.address, name or ".") for page in (light, dark))
        assert brightness(by_day["background"]) > 0.9 > 0.5 > brightness(by_day["ink"]), name
        assert brightness(by_night["background"]) < 0.2 < 0.5 < brightness(by_night["ink"]), name


def brightness(colour: str) -> float:
    return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 3 / 255


def test_the_sidebar_leads_through_the_parts(page: Page, site: Site) -> None:
    for part, first in (("Reference", "Commands"), ("Explanation", "Concepts")):
        for name in (part, first):
            link = page.locator(".sidebar-tree").get_by_role("link", name=name, exact=True)
            if page.viewport_size and page.viewport_size["width"] < 500:
                assert not in_view(page, ".sidebar-drawer")
                page.locator("label.mobile-header-icon, .mobile-header label[for=__navigation]").first.click()
                page.wait_for_function("document.querySelector('.sidebar-drawer').getBoundingClientRect().left >= 0")
            link.click()
            page.wait_for_load_state()
    expect(page.locator("h1")).to_have_text(re.compile("Concepts"))
    assert page.url == f"{site.address}explanation/concepts/"


def in_view(page: Page, selector: str) -> bool:
    box = page.locator(selector).bounding_box()
    return box is not None and box["x"] >= 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [("update_state", "lpkit"), ("LP202", "LP202"), ("prefill", "oncepts"), ("force sequence", "Force a token")],
)
def test_search_finds(site: Site, words: str, expected: str) -> None:
    page = site.open().new_page()
    page.goto(f"{site.address}search/?q={words}")
    results = page.locator("#search-results li a")
    expect(results.filter(has_text=expected).first).to_be_visible()
    results.filter(has_text=expected).first.click()
    page.wait_for_load_state()
    assert "search" not in page.url
    expect(page.locator("h1").first).to_be_visible()


def test_the_sidebars_search_box_searches(page: Page) -> None:
    if page.viewport_size and page.viewport_size["width"] < 500:
        page.locator(".mobile-header label[for=__navigation]").first.click()
    page.locator("input.sidebar-search").fill("preemption")
    page.locator("input.sidebar-search").press("Enter")
    expect(page.locator("#search-results li a").first).to_be_visible()


def test_the_button_of_a_code_block_copies_it(page: Page, site: Site) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{site.address}explanation/concepts/")
    block = page.locator("div.highlight").first
    block.hover()
    block.locator("button.copybtn").click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text.length > 0)")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == block.locator("pre").inner_text().strip()
