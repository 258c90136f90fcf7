"""Every example is wrong in the way its check is about, and right when its diff is applied."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path

import lpkit
import pytest
import torch
from lpkit.loading import interfaces_of
from lpkit_conformance import examples
from lpkit_conformance.catalogue import all_checks
from lpkit_conformance.report import explain
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.hosts import HOSTS, RUNNER_HOSTS, hosts_of
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session

CHECKS = {check.code: check for check in all_checks(None)}
SLOW = ("LP219", "LP220", "LP308", "LP604", "LP606", "LP808")
OF_THE_STYLE = {"LP004", "LP701"}
"""Advice to a raw V1 class with a loop over rows, wrong or right: the examples are short, not fast."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def judge(
    source: str, name: str, module: str, folder: Path, patch: pytest.MonkeyPatch, asked: Iterable[str]
) -> list[CheckResult]:
    """The results of the processor in ``source``, which becomes module ``name``, on the runners and those asked for."""
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    patch.syspath_prepend(str(folder))
    loaded = importlib.import_module(name)
    (cls,) = (item for item in vars(loaded).values() if isinstance(item, type) and item.__module__ == name)
    hosts = hosts_of(interfaces_of(cls), (*RUNNER_HOSTS, *asked))
    ignored = tuple(code for code in SLOW if not name.startswith(f"wrong_{code.lower()}_"))
    plan = Plan(cases=(Case.parse(examples.CASES[module]),), ignore=ignored, hosts=hosts)
    return list(Session(f"{name}:{cls.__name__}", cls, plan).results())


def also(example: examples.Example) -> set[str]:
    """What a check says that is blocked by the others that an example may fail."""
    return {f"needs {code}" for code in example.also}


def broken(results: list[CheckResult]) -> set[str]:
    return {item.code for item in results if item.status in ("failed", "advice", "error")} - OF_THE_STYLE


@pytest.mark.parametrize("module", sorted(examples.CASES))
def test_the_right_form_passes(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = examples.Example(module, "").right
    results = judge(right, f"right_{module}", module, tmp_path, monkeypatch, HOSTS)
    assert not broken(results)
    assert not [item.label for item in results if item.status == "blocked" or "never active" in item.message]


@pytest.mark.parametrize("name", examples.names())
def test_the_wrong_form_fails_its_check_and_none_but_those_it_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, example = name.partition(".")[0], examples.example(name)
    module, asked = f"wrong_{name.lower().replace('.', '_')}", CHECKS[code].hosts
    if not set(RUNNER_HOSTS).isdisjoint(asked):
        asked = ()
    results = judge(example.wrong, module, example.module, tmp_path, monkeypatch, asked)
    assert broken(results) <= {code, *example.also}
    # One cause is one failure: where a check that is named beside it tells it already, its own is blocked.
    assert code in broken(results) | {item.code for item in results if item.message in also(example)}


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


@pytest.mark.parametrize("code", sorted(examples.PREVENTED))
def test_what_the_base_classes_prevent_has_no_example_on_them(code: str) -> None:
    assert not [item for item in examples.examples_of(code) if item.bases == examples.STYLES[".sdk.diff"]]
    assert "With lpkit's base classes this cannot happen" in "\n".join(explain.lines(CHECKS[code]))


def test_a_hunk_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="0 times, not once"):
        _ = examples.Example("v1", "-wrong\n+no such line").wrong


def test_a_check_without_an_example_has_none() -> None:
    assert examples.examples_of("LP001") == []
