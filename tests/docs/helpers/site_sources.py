"""The pages that the site is built from: those written by hand, and those that docs/generate.py makes."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
NOTICE = "<!-- Written by docs/generate.py"


def written_by_hand() -> list[str]:
    """Paths of the pages below ``docs/`` that are in git, also where the site was built before."""
    pages = [page for page in DOCS.rglob("*.md") if not page.read_text("utf-8").startswith(NOTICE)]
    return sorted(page.relative_to(DOCS).as_posix() for page in pages)


@cache
def sources() -> dict[str, str]:
    """Every page and picture of the site, by its path below ``docs/``."""
    pages: dict[str, str] = module("generate.py").pages()
    return pages | {name: (DOCS / name).read_text("utf-8") for name in written_by_hand()}


def module(path: str) -> ModuleType:
    """A module below ``docs/``."""
    name = Path(path).stem
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, DOCS / path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
