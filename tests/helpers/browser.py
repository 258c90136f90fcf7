"""Pages in a browser without a window, and what it measures there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")

COMMON = """<script>window.onerror = said => { document.documentElement.dataset.problem = said; };</script>"""

CONTRAST = 4.5
"""Least contrast of text, as WCAG AA asks."""

FAINT = """
  const paint = (colour) => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d');
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => below.map((part, n) => part + (top[n] - part) * top[3] / 255);
  const under = (node) => {
    if (!node) return [255, 255, 255];
    const svg = node.tagName === 'text' && node.closest('svg');
    if (!svg) return over(paint(getComputedStyle(node).backgroundColor), under(node.parentElement));
    const box = node.getBBox(), middle = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2);
    return [...svg.querySelectorAll('rect, circle, path')]
      .filter((shape) => shape.compareDocumentPosition(node) & 4 && shape.isPointInFill(middle))
      .map((shape) => getComputedStyle(shape)).filter((style) => style.fill !== 'none' && style.opacity === '1')
      .reduce((ground, style) => over(paint(style.fill), ground), under(svg));
  };
  const light = (colour) => colour.slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, n) => sum + part * [0.2126, 0.7152, 0.0722][n], 0);
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const faint = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !node.checkVisibility() || node.closest('script, style')) continue;
    const style = getComputedStyle(node), ground = under(node);
    const ink = over(paint(node.closest('svg') ? style.fill : style.color), ground);
    const found = contrast(ink, ground);
    if (found < CONTRAST) faint.add(`${node.className.baseVal ?? node.className}: ${found.toFixed(2)}`);
  }
  all.faint = [...faint].join('; ');
"""
"""Measures the contrast of every visible text with the colour behind it; ``faint`` holds what misses it."""


def rendered(folder: Path, text: str, measure: str, width: int, dark: bool = False) -> str:
    """Return the tag ``html`` of a page that a browser has laid out; its attributes hold the measurements.

    Args:
        measure: JavaScript that sets attributes of ``all``. ``overflows`` and ``faint`` are set for every page, and
            ``problem`` if a script raised.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"NOT RUN IN A BROWSER: none of {', '.join(BROWSERS)} is installed")
    script = f"""<script>{{
      const all = document.documentElement.dataset;
      all.overflows = document.documentElement.scrollWidth > innerWidth;
      document.querySelectorAll('details').forEach((closed) => {{ closed.open = true; }});
      {FAINT.replace("CONTRAST", str(CONTRAST))}
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
