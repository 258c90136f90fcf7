"""The examples of the checks' pages. The zoo judges them: wrong forms are planted defects, right forms are correct."""

from __future__ import annotations

import importlib

import lpkit
import pytest
from lpkit_conformance.checks import examples
from lpkit_conformance.checks.catalogue import all_checks
from lpkit_conformance.report import explain
from site_sources import ROOT, module

CHECKS = {check.code: check for check in all_checks(None)}


@pytest.mark.parametrize("name", examples.names())
def test_an_example_derives_from_what_its_page_says(name: str) -> None:
    module = importlib.import_module(f"{examples.__name__}.{examples.example(name).module}")
    (cls,) = (item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__)
    assert issubclass(cls, lpkit.LogitsProcessor | lpkit.AdapterLogitsProcessor) == name.endswith(".sdk.diff")


def test_the_example_on_lpkits_base_classes_is_shown_first() -> None:
    first, second = examples.examples_of("LP201")
    assert (first.module, second.module) == ("portable", "v1")
    shown = "\n".join(explain.lines(CHECKS["LP201"]))
    assert 0 < shown.index(first.diff) < shown.index(second.diff)


@pytest.mark.parametrize("code", [code for code, check in CHECKS.items() if check.prevented])
def test_what_the_base_classes_prevent_has_no_example_on_them(code: str) -> None:
    assert not [item for item in examples.examples_of(code) if item.bases == examples.STYLES[".sdk.diff"]]
    assert "With lpkit's base classes this cannot happen" in "\n".join(explain.lines(CHECKS[code]))


def test_a_hunk_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="0 times, not once"):
        _ = examples.Example("v1", "-wrong\n+no such line").wrong


def test_a_check_without_an_example_has_none() -> None:
    assert examples.examples_of("LP001") == []


def test_the_page_of_a_check_shows_the_report_and_the_batch_of_its_wrong_form() -> None:
    generate = module("generate.py")
    page = generate.check_page(CHECKS["LP202"], judged=True)
    assert "FAIL LP202[v1] replace-on-add" in page and "line        lp202.py:" in page
    assert "](LP202.svg)" in page and generate.fault_of("LP202")[1]["differs"]


def test_a_plugins_page_has_the_picture_of_its_rule_before_its_sections() -> None:
    generate = module("generate.py")
    picture = generate.drawing_of(ROOT / "reference_plugins/lpkit-thinking-budget")
    assert "0.1% \u2192 100%" in picture, "the end marker is forced"
    pages = generate.plugin_pages(drawn=False)
    assert "](lpkit-min-p.md)" in pages["plugins/index.md"] and "# lpkit-min-p" in pages["plugins/lpkit-min-p.md"]
