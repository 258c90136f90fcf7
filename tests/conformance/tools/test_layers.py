"""The table of layers: every import goes down, and the rules report an import that does not."""

from __future__ import annotations

import pytest
from layers import imports, rules


def test_every_import_goes_down_and_every_room_says_what_it_holds() -> None:
    assert rules.violations() == []


@pytest.fixture
def also_imports(monkeypatch: pytest.MonkeyPatch):
    """``also_imports(a, b)``: from then on module ``a`` imports ``b`` too."""

    def add(module: str, other: str) -> None:
        found = {**imports.imports(), module: imports.imports()[module] | {other}}
        for place in (imports, rules):
            monkeypatch.setattr(place, "imports", lambda: found)

    return add


@pytest.mark.parametrize(
    ("module", "other", "problem"),
    [
        ("lpkit_conformance.results", "lpkit_conformance.run", "it lies in a higher layer"),
        ("lpkit_conformance.traces.codec", "lpkit_conformance.instruments.author_lines", "it lies in the same layer"),
        ("lpkit.rng", "lpkit_conformance.results", "it lies in a higher layer"),
        ("lpkit.runtime.batch.request", "lpkit.rng", "runtime.batch may import only v1, v2, sampling_params"),
    ],
)
def test_an_import_that_goes_up_or_aside_is_reported(also_imports, module: str, other: str, problem: str) -> None:
    also_imports(module, other)
    assert f"{module} imports {other}: {problem}" in rules.violations()


def test_a_circle_within_a_room_is_reported(also_imports) -> None:
    also_imports("lpkit_conformance.traces.schema", "lpkit_conformance.traces.codec")
    assert any(
        line.startswith("a circle of imports: ") and "lpkit_conformance.traces.schema" in line
        for line in rules.violations()
    )


def test_lazy_and_type_checking_imports_count() -> None:
    assert "lpkit_conformance.vllm_api.stub" in imports.imports()["lpkit_conformance.vllm_api.choose"]  # lazy
    assert "lpkit_conformance.subject.subject" in imports.imports()["lpkit_conformance.checks.base"]


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        (1, "lpkit.rng has 8 lines, and layers/table.toml grants 1: cut, or raise it"),
        (1000, "lpkit.rng has 8 lines: lower its budget of 1000"),
    ],
)
def test_a_room_that_outgrows_its_budget_or_no_longer_needs_it_is_reported(
    monkeypatch: pytest.MonkeyPatch, budget: int, problem: str
) -> None:
    monkeypatch.setitem(rules.table()["lpkit"]["lines"], "rng", budget)
    monkeypatch.setattr(rules, "lines", lambda room: 8 if room == "lpkit.rng" else 0)
    assert problem in rules.violations()
