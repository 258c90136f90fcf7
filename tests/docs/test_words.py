"""Phrases that must not come back: riddles and literal translations, each with the wording to use instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ROOMS = ("sdk", "conformance", "cli", "template", "reference_plugins", "benchmarks", "docs", "tests")

EXCLUDED = (
    Path(__file__).relative_to(ROOT).as_posix(),
    "tests/contracts/golden/",  # what earlier releases wrote
    "template/past/",
)

INSTEAD: dict[str, str] = {
    r"(?<!here )(is|are|was|were) none\b": "is not one; does not exist; 'there are none' is fine",
    r"(?<!here )\b(is|are|was|were) no (?!longer\b|more\b|less\b)[a-z]": "is not a; 'there is no' is fine",
    r"\bto be had\b": "available",
    r"\b[Ww]hoever\b": "any request that; code that; name who or what it is",
    r"\bwithout a word\b": "silently",
    r"\bthat is as well\b": "say why it does not matter",
    r"\bbelongs? into\b": "belongs to, belongs in",
    r"\bnot concerned\b": "does not use this processor; does not opt in",
    r"\bnone of (yours|ours)\b": "does not use the plugin",
    r"\bloaded by itself\b": "vLLM loads it automatically",
    r"\bcosts? nothing\b": "at no cost, has no cost",
    r"\b[Ss]omebody else\b": "name who: another project, another processor",
    r"\b[Ee]verybody\b": "everyone; all requests",
    r"\bsees? to it\b": "guarantees",
    r"\bnot idle\b": "this matters",
    r"\b[Nn]ow and then\b": "sometimes",
    r"\bthrown away\b": "discarded",
    r"\bnobody else notices\b": "other requests are unaffected",
    r"\bcan be asked\b": "provides",
    r"\bof others' making\b": "third-party",
    r"\bAnother seed is\b": "Seed for",
    r"\bthings? would go wrong\b": "problems found",
    r"\bhas no say\b": "does not influence",
    r"\brun and prove\b": "test and benchmark",
    r"\bbookkeeping of the batch\b": "batch bookkeeping",
    r"\bwhat a step costs\b": "per-step cost",
    r"\b(ends|end|ended) the engine for\b": "stops the engine for everyone",
    r"\b(is|are) left alone\b": "is unaffected; is left unchanged",
    r"\bgo(es)? its own way\b": "differs",
    r"(?<!-)\bby itself\b": "automatically; alone; self-contained",
    r"\b(throws?|threw) (it |them )?away\b": "discards",
    r"\bdoes not concern\b|\bconcerns (every|the|a) ": "uses; reaches; applies to",
    r"\bhence\b": "so; therefore",
    r"\b(does|do|did) without\b": "does not use; disables; is not needed",
    r"\b(proves?|proved) that\b": "tests that; checks that",
    r"\bleaves? \w+( row)? alone\b": "leaves unchanged",
    r"\bthere is to know\b": "more about; metadata",
    r"\b[Ss]omebody\b": "a user; someone",
    r"\bspoils? the\b": "fails the run",
    r"\bno longer at fault\b": "no longer fails",
    r"\bare to be read\b": "read them",
    r"\bas one would\b": "say who does it",
    r"\bcommonest\b": "most common",
    r"\bother logits (in the batch )?than\b": "different logits than",
}


def pages() -> list[Path]:
    """The sources and pages that people write."""
    found = [*ROOT.glob("*.md")]
    for room in ROOMS:
        found += [path for end in ("py", "md") for path in (ROOT / room).rglob(f"*.{end}")]
    names = {path.relative_to(ROOT).as_posix(): path for path in found}
    return [path for name, path in sorted(names.items()) if not name.startswith(EXCLUDED)]


@pytest.mark.parametrize("pattern", INSTEAD)
def test_no_page_says_it(pattern: str, texts: dict[str, str]) -> None:
    said = re.compile(pattern)
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}"
        for name, text in texts.items()
        for match in said.finditer(text)
    ]
    assert not found, f"say instead: {INSTEAD[pattern]}\n" + "\n".join(found)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in pages()}


def test_the_phrases_are_found_where_they_stand() -> None:
    said = "It is no accident: whoever asks is not concerned, and that is as well."
    assert sum(bool(re.search(pattern, said)) for pattern in INSTEAD) == 4
    fine = "There is no such row, it is no longer used, and `value is None`."
    assert not any(re.search(pattern, fine) for pattern in INSTEAD)
