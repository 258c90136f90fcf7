"""Pages in a browser without a window, and what it measures there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")

COMMON = """<script>window.onerror = said => { document.documentElement.dataset.problem = said; };</script>"""


def rendered(folder: Path, text: str, measure: str, width: int, dark: bool = False) -> str:
    """Return the tag ``html`` of a page that a browser has laid out; its attributes hold the measurements.

    Args:
        measure: JavaScript that sets attributes of ``all``. ``overflows`` is set for every page, and ``problem`` if a
            script raised.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"NOT RUN IN A BROWSER: none of {', '.join(BROWSERS)} is installed")
    script = f"""<script>{{
      const all = document.documentElement.dataset;
      all.overflows = document.documentElement.scrollWidth > innerWidth;
      {measure}
    }}</script></body>"""
    file = folder / "page.html"
    file.write_text(text.replace("<head>", f"<head>{COMMON}").replace("</body>", script), encoding="utf-8")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    command = [found, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", *scheme]
    done = subprocess.run(
        [*command, f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    tag = re.search(r"<html[^>]*>", done.stdout)
    assert tag is not None
    return tag[0]
