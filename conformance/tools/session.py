"""Records the terminal session of the README: a plugin is made, broken, checked and repaired (``make session``).

Every line is what the commands print; lines that say where this machine keeps things are shortened, and none is added.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from commands import output
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PAGE = Path("docs/start/session.svg")
WIDTH = 104
RIGHT, WRONG = "self.after[request.slot] = request.params.after", "self.limit = request.params.after"
READ_RIGHT, READ_WRONG = "self.after[rows]", "self.limit"
REPLAY = "lpkit replay .lpkit/failures/my-proc-LP201-v1.json"
THEME = TerminalTheme(
    (23, 27, 34),
    (230, 233, 240),
    [(57, 65, 79), (255, 107, 125), (120, 210, 150), (240, 190, 90)] + [(122, 170, 255), (210, 150, 240)] * 2,
    [(154, 164, 184), (255, 107, 125), (120, 210, 150), (240, 190, 90)] + [(122, 170, 255), (210, 150, 240)] * 2,
)
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.S)
_CIRCLES = re.compile(r'<g transform="translate\(26,22\)">.*?</g>', re.S)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", type=Path, default=PAGE)
    page = parser.parse_args().page
    with tempfile.TemporaryDirectory() as folder:
        page.write_text(as_svg(session(Path(folder))), encoding="utf-8")
    return 0


def session(folder: Path) -> Iterator[str]:
    """The lines of the terminal, with colours as escape sequences."""
    plugin = folder / "my-proc"
    yield "$ lpkit new my-proc && cd my-proc"
    run(folder, "new", "my-proc", "--no-git", "--no-input")
    yield ""
    yield "$ lpkit check"
    yield from shortened(run(plugin, "check", "--format", "rich"), folder)
    yield ""
    yield "# A mistake: one limit for all requests, instead of one for each."
    yield f"# - {RIGHT}"
    yield f"# + {WRONG}"
    edit(plugin, RIGHT, WRONG, READ_RIGHT, READ_WRONG)
    yield "$ lpkit check"
    yield from shortened(run(plugin, "check", "--format", "rich", code=1), folder)
    yield ""
    yield "# The two lines are put back."
    edit(plugin, WRONG, RIGHT, READ_WRONG, READ_RIGHT)
    yield f"$ {REPLAY}"
    yield from shortened(run(plugin, *REPLAY.split()[1:]), folder)


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    """What the command prints; it must end with this exit code."""
    environment = {**os.environ, "FORCE_COLOR": "1", "PYTHONPATH": "src", "COLUMNS": str(WIDTH)}
    return output([sys.executable, "-m", "lpkit_cli.app", *arguments], folder, environment, code)


def edit(plugin: Path, *pairs: str) -> None:
    """Replace the first, third, ... text by the one behind it, in the plugin's module."""
    module = plugin / "src" / "my_proc" / "processor.py"
    text = module.read_text(encoding="utf-8")
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        if text.count(old) != 1:
            raise RuntimeError(f"{module.name} has {text.count(old)} times: {old}")
        text = text.replace(old, new)
    module.write_text(text, encoding="utf-8")


def shortened(printed: str, folder: Path) -> Iterator[str]:
    """Paths from the plugin's folder on; seconds and versions of this machine's Python and torch without digits."""
    for line in printed.rstrip("\n").split("\n"):
        line = line.replace(f"{folder}/my-proc/", "")
        yield re.sub(r"\b\d+\.\d+ s\b", "0.0 s", re.sub(r"(torch|python) [\d.]+(\+\w+)?", r"\1 ...", line))


def as_svg(lines: Iterator[str]) -> str:
    """A terminal with these lines; no fonts from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        style = "bold" if line.startswith("$ ") else "italic dim" if line.startswith("# ") else ""
        console.print(Text.from_ansi(line, style=style), highlight=False)
    drawn = console.export_svg(title="lpkit check", theme=THEME, unique_id="session")
    return "\n".join(line.rstrip() for line in _CIRCLES.sub("", _FONTS.sub("", drawn)).strip().split("\n")) + "\n"


if __name__ == "__main__":
    sys.exit(main())
