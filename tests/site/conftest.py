"""The built site (``make site``), served on loopback, and a headless Chromium to read it with."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from site_reader import SITE, Site

OPTIONS = (
    "--no-sandbox",  # containers run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Requests are not news."""


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *args: Any) -> None:
        """A server that ignores aborted connections: a browser that leaves a page closes unused connections."""


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    if not (SITE / "index.html").is_file():
        pytest.fail("there is no site in build/site: make site")
    handler = functools.partial(Quiet, directory=str(SITE))
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    found = shutil.which("chromium")
    if found is None:
        reason = "NOT CHECKED: the site needs a browser; install Debian's chromium"
        if os.environ.get("LPKIT_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    launched = playwright.chromium.launch(executable_path=found, args=list(OPTIONS))
    yield launched
    launched.close()


@pytest.fixture
def site(browser: Browser, address: str) -> Iterator[Site]:
    site = Site(browser, address)
    yield site
    assert not site.problems


@pytest.fixture(params=[("desktop", "light"), ("desktop", "dark"), ("phone", "light"), ("phone", "dark")], ids="-".join)
def page(site: Site, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = site.open(*request.param)
    page = context.new_page()
    page.goto(site.address)
    yield page
    context.close()
