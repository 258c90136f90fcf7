"""The code on the pages runs, prints the output shown, and its processors are conformant."""

from __future__ import annotations

import contextlib
import io
import posixpath
import re
from pathlib import Path
from typing import Any

import pytest
from lpkit.loading import resolve_target
from lpkit_conformance.checks import examples
from lpkit_conformance.checks.catalogue import all_checks, inactive
from lpkit_conformance.results import DOCUMENTATION
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from markdown_blocks import Block, blocks, matches
from site_sources import DOCS, ROOT, sources, written_by_hand

WALKED = ["start/tutorial.md", "how-to/migration.md"]
"""Pages that a test of their own walks through, command by command."""
RUN = [name for name in written_by_hand() if name not in WALKED]
PROCESSORS = [(name, block) for name in RUN for block in blocks(DOCS / name) if block.mark == "case"]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", RUN)
def test_python_blocks_run_and_print_what_the_page_says(name: str) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    printed = io.StringIO()
    for block in blocks(DOCS / name):
        where = f"{name}:{block.line}"
        if block.language == "python" and block.mark != "not run":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, where, "exec", dont_inherit=True), namespace)
        elif block.language == "text":
            assert matches(block.text, printed.getvalue()), f"{where}: {printed.getvalue()}"


@pytest.mark.parametrize("name", RUN)
def test_settings_on_the_pages_are_accepted(name: str, tmp_path: Path) -> None:
    for block in blocks(DOCS / name):
        if block.language == "toml":
            (tmp_path / "pyproject.toml").write_text(block.text, encoding="utf-8")
            found = projects.find(tmp_path)
            assert found is not None
            assert {item.code for item in found.expected} <= {check.code for check in all_checks()}


@pytest.mark.broad
@pytest.mark.parametrize(("name", "block"), PROCESSORS, ids=[f"{name}:{block.line}" for name, block in PROCESSORS])
def test_processors_on_the_pages_are_conformant(
    name: str, block: Block, few_checks: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / f"line_{block.line}.py"
    file.write_text(block.text, encoding="utf-8")
    classes = re.findall(r"^class (\w+)", block.text, re.M)
    target = f"{file}:{classes[-1]}"  # the ones before it are what it is made of
    plan = Plan(cases=(Case.parse(block.value),), select=few_checks)
    results = list(Session(target, resolve_target(target), plan).results())
    assert not [item for item in results if item.status not in ("passed", "skipped")]
    assert not inactive(results)


def test_links_lead_somewhere() -> None:
    pages = {f"docs/{name}": text for name, text in sources().items()}
    pages |= {name: (ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")}
    broken = [
        f"{name}: {link}"
        for name, text in pages.items()
        if name.endswith(".md")
        for link in LINK.findall(text)
        if not leads_somewhere(name, link, pages)
    ]
    assert not broken


def leads_somewhere(name: str, link: str, pages: dict[str, str]) -> bool:
    path, _, anchor = link.partition("#")
    if path.startswith(DOCUMENTATION):
        path = f"docs/{path.removeprefix(DOCUMENTATION)}".rstrip("/")
        target = f"{path}.md" if f"{path}.md" in pages else f"{path}/index.md"
    elif "://" in path:
        return True
    else:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
    if target.endswith(".svg"):  # drawn for each plugin, and for each check that has an example
        if target.startswith("docs/plugins/"):
            return f"{target.removesuffix('.svg')}.md" in pages
        return bool(examples.examples_of(posixpath.basename(target).removesuffix(".svg")))
    if target not in pages:
        # Below docs/ an earlier build may have left pages that a checkout lacks.
        return not anchor and not target.startswith("docs/") and (ROOT / target).exists()
    return not anchor or anchor in anchors(pages[target])


def anchors(text: str) -> set[str]:
    """The anchors that a forge and the site give to a page's headings."""
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", [name for name in written_by_hand() if name != "reference/changelog.md"])
def test_pages_name_generated_ones_by_their_published_address(name: str) -> None:
    relative = [link for link in LINK.findall(sources()[name]) if "://" not in link and not link.startswith("#")]
    folder = posixpath.dirname(name)
    targets = {posixpath.normpath(posixpath.join(folder, link.partition("#")[0])) for link in relative}
    assert not targets & (sources().keys() - set(written_by_hand()))
