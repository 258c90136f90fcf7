"""The reference names every key of every document, every setting and every exit code, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.results import SCHEMA, CheckResult, Finding, Report, TargetResult
from lpkit_conformance.run import failures
from lpkit_conformance.settings import project

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
GOLDEN = ROOT / "tests" / "contracts" / "golden"
FREE = {"where", "cases", "case", "versions", "timeline", "logits", "scenario", "syncs", "kernels"}
"""Keys whose values are the plugin's, or are described as a whole."""


def section(title: str) -> str:
    text = (REFERENCE / "schemas.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found is not None
    return found[1]


def named(text: str) -> set[str]:
    return set(re.findall(r"`([\w-]+)`", text))


def rows(text: str) -> set[str]:
    """The keys in the first columns of its tables."""
    return {key for row in re.findall(r"^\|([^|]+)\|", text, re.M) for key in re.findall(r"`([\w-]+)`", row)}


def keys(document: Any) -> set[str]:
    """Every key of a document, at any depth."""
    if isinstance(document, list | tuple):
        return {key for item in document for key in keys(item)}
    if not isinstance(document, dict):
        return set()
    below = {key for name, value in document.items() if name not in FREE for key in keys(value)}
    return {*document, *below} - {"or"}


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return found


def check_report() -> dict[str, Any]:
    check = CheckResult("LP202", "replace-on-add", "v1", "failed", "wrong", Finding("wrong"))
    settings = golden("check")["json"]["targets"][0]["settings"]
    return Report((TargetResult("plugin", ("v1",), (check,), settings=settings),)).to_json()


def test_the_check_report() -> None:
    assert keys(check_report()) - named(section("Check report")) == set()
    assert rows(section("Check report")) <= keys(check_report())
    assert SCHEMA in section("Check report")


@pytest.mark.parametrize(("title", "name"), [("List", "list"), ("Doctor", "doctor"), ("Bench", "bench")])
def test_the_other_documents(title: str, name: str) -> None:
    document = golden(name)
    for item in ("exit code", "exit codes", "keys", "sizes", "facts"):  # of the contract, not of the document
        document.pop(item, None)
    versions = {"torch", "vllm-lpkit", "transformers"}
    listed = named(section(title)) | (named(section("List")) if title == "Doctor" else set())
    assert keys(document) - listed - versions == set()
    there = keys(document) | set(golden(name).get("keys", ())) | {"vllm"}  # the goldens' environment may lack it
    assert rows(section(title)) <= there
    assert document["schema"] in section(title)


def test_saved_failures() -> None:
    text = section("Saved failure")
    assert rows(text) == set(failures.KEYS)
    assert failures.SCHEMA in text


def test_settings() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    assert rows(page) == set(project.KEYS)


def test_exit_codes_are_in_one_place() -> None:
    page = (REFERENCE / "exit-codes.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d+) \|", page, re.M) == ["0", "1", "2", "3", "4", "130"]
    others = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    repeated = [path for path in others if re.search(r"^\| 130 \|", path.read_text("utf-8"), re.M)]
    assert repeated == [REFERENCE / "exit-codes.md"]
