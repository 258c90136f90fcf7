"""A reader of the built site, in a browser that notes what goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext

SITE = Path(__file__).resolve().parents[3] / "build" / "site"

VIEWPORTS = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}


class Site:
    """The site at an address, read by a browser in some width and colour scheme."""

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser = browser
        self.address = address
        self.problems: list[str] = []

    def open(self, width: str = "desktop", colours: str = "light") -> BrowserContext:
        context = self._browser.new_context(viewport=VIEWPORTS[width], color_scheme=colours)
        context.set_default_timeout(10_000)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.problems.append(f"{error.page and error.page.url}: {error.error}"))
        context.on("request", self._request)
        context.on("response", self._response)
        return context

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.problems.append(f"asks for {request.url}")

    def _response(self, response: Any) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status}: {response.url}")
