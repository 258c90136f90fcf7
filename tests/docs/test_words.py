"""Plain English as a rate: few docstrings and sentences may open with a relative clause, which readers must decode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("sdk", "conformance", "cli", "template", "reference_plugins", "benchmarks", "docs", "tests")
EXCLUDED = ("tests/contracts/golden/", "template/past/", "docs/checks/", "docs/plugins/")
"""Files written by earlier releases, and pages made from docstrings."""

RELATIVE = re.compile(r"(What|Whether|Those|Which|Who|Whose|Where|How|That|Whatever|Whoever)\b")
DEFINED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

DOCSTRINGS, SENTENCES = 0.0006, 0.0099
"""Ceilings: the rates that were measured last. Lower them when the text gets better; the aim is 0.03."""


def files(ending: str) -> Iterator[Path]:
    for path in [*ROOT.glob(f"*.{ending}"), *(path for room in ROOMS for path in (ROOT / room).rglob(f"*.{ending}"))]:
        if not path.relative_to(ROOT).as_posix().startswith(EXCLUDED):
            yield path


def docstrings() -> Iterator[tuple[str, str]]:
    """(place, docstring) of every module, class and function."""
    for path in files("py"):
        try:
            pending: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
        except SyntaxError:  # a template with variables in it
            continue
        for node in pending:
            pending += [child for child in getattr(node, "body", ()) if isinstance(child, DEFINED)]
            if isinstance(node, DEFINED) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text


def sentences() -> Iterator[tuple[str, str]]:
    """(place, sentence) of every page, without code, headings, tables and questions."""
    for path in files("md"):
        prose = re.sub(r"^(```|~~~).*?^\1", "", path.read_text("utf-8"), flags=re.M | re.S)
        for paragraph in re.split(r"\n\s*\n", prose):
            lines = [line for line in paragraph.splitlines() if not line.lstrip().startswith(("#", "|", "<", "{"))]
            for item in re.split(r"^\s*(?:[-*]|\d+\.)\s+", "\n".join(lines), flags=re.M):
                for sentence in re.split(r"(?<=[.!?:])\s+", item.strip()):
                    if sentence and not sentence.endswith("?"):
                        yield str(path.relative_to(ROOT)), sentence


def share(texts: Iterator[tuple[str, str]], ceiling: float) -> None:
    opened = [(bool(RELATIVE.match(text)), f"{place}: {text.splitlines()[0]}") for place, text in texts]
    relative = [shown for is_relative, shown in opened if is_relative]
    rate = len(relative) / len(opened)
    listed = "\n".join(relative)
    assert rate <= ceiling, f"{rate:.1%} open with a relative clause, at most {ceiling:.1%} may:\n{listed}"


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    share(docstrings(), DOCSTRINGS)


def test_sentences_of_pages_begin_with_their_subject() -> None:
    share(sentences(), SENTENCES)


def test_a_relative_opening_is_found() -> None:
    assert RELATIVE.match("What is told of a request.") and RELATIVE.match("Whether it ends.")
    assert not RELATIVE.match("Return the rows.") and not RELATIVE.match("However it ends, a row is left.")
