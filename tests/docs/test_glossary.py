"""Every word that reports put in front of something is in the glossary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from lpkit_conformance.report.text import check_lines
from lpkit_conformance.results import CheckResult, Finding, Status
from lpkit_conformance.settings.hosts import HOSTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, STATUSES = DOCS / "reference" / "glossary.md", DOCS / "explanation" / "conformance.md"
FULL = Finding(
    summary="a row differs",
    where={"request": "B", "step": "3"},
    expected="1.0",
    got="2.0",
    operations=("B arrives",),
    cause="state did not move",
    fix="move it",
    location="plugin.py:3",
    picture=("step  row 0",),
    scenario=None,
    saved="failure.json",
)
OTHERS = {
    *("alone", "case", "host", "never active", "seed", "stand-in", "target", "tier", "trace"),
    *("greedy", "preemption", "draft"),
}
"""Words of summaries and headlines."""


def defined(page: Path = PAGE) -> set[str]:
    terms = re.findall(r"^\| ([^|]+?) \| .+ \|$", page.read_text(encoding="utf-8"), re.M)
    return {word for term in terms for word in term.split(", ")}


def test_the_labels_of_a_finding_are_defined() -> None:
    lines = check_lines(CheckResult("LP203", "replaced-row", "v1", "failed", "a row differs", FULL))
    labels = {line[4:15].strip() for line in lines if line.startswith("    ") and line[4:15].strip()}
    wanted = "rule, where, expected, got, operations, batch, cause, fix, line, replay, more"
    assert {*wanted.split(", ")} <= labels
    assert not labels - defined()


def test_what_can_become_of_a_check_is_defined() -> None:
    assert {status.replace("_", " ") for status in get_args(Status)} <= defined(STATUSES)


def test_words_of_summaries_and_positions_are_defined() -> None:
    assert not (OTHERS | {row.position for row in HOSTS.values()} | set(FULL.where)) - defined()


def test_terms_are_sorted_and_defined_once() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in ("In a report", "Of the engine"):
        section = re.split(r"^## ", text.split(f"## {name}")[1], flags=re.M)[0]
        terms = re.findall(r"^\| ([^|]+?) \| .+ \|$", section, re.M)[1:]
        assert terms == sorted(terms, key=str.lower)
        assert len(terms) == len(set(terms))
