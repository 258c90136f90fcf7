"""Names that a plugin project may have."""

from __future__ import annotations

import keyword
import sys

import pytest
from lpkit_cli.scaffold.naming import MAX_LENGTH, Names, names_for
from lpkit_conformance.errors import UsageError

GOOD = {
    "my-proc": Names("my-proc", "my_proc", "MyProc"),
    "x": Names("x", "x", "X"),
    "My.Proc_2": Names("My.Proc_2", "my_proc_2", "MyProc2"),
    "a--b": Names("a--b", "a_b", "AB"),
    "logitsProc": Names("logitsProc", "logitsproc", "Logitsproc"),
}


@pytest.mark.parametrize("project", GOOD)
def test_names_follow_from_the_distribution(project: str) -> None:
    assert names_for(project) == GOOD[project]


@pytest.mark.parametrize("project", ["value-error", "test-time-budget", "none"])
def test_class_names_shadow_no_builtin_and_are_no_test_class(project: str) -> None:
    assert names_for(project).class_name.startswith("Lp")


@pytest.mark.parametrize(
    ("project", "because", "instead"),
    [
        ("", "empty", "my-processor"),
        ("my proc", "not a valid distribution name", "my-proc"),
        ("-x", "not a valid distribution name", "x"),
        ("x-", "not a valid distribution name", "x"),
        ("../up", "not a valid distribution name", "up"),
        ("C:\\x", "not a valid distribution name", "C-x"),
        ("procédé", "not a valid distribution name", "proc-d"),
        ("x\n", "not a valid distribution name", "x"),
        ("{{ 7*7 }}", "not a valid distribution name", "lp-7-7"),
        ("2fast", "start with a letter", "lp-2fast"),
        ("class", "keyword", "lp-class"),
        ("None", "keyword", "lp-None"),
        ("json", "Python's own module", "lp-json"),
        ("JSON", "Python's own module", "lp-JSON"),
        ("lpkit", "taken", "lp-lpkit"),
        ("vllm", "taken", "lp-vllm"),
        ("vllm-lpkit", "taken", "lp-vllm-lpkit"),
        ("Torch", "taken", "lp-Torch"),
        ("tests", "taken", "lp-tests"),
        ("com1", "Windows", "lp-com1"),
        ("a" * (MAX_LENGTH + 1), "too long", "a" * MAX_LENGTH),
    ],
)
def test_bad_names_are_refused_and_a_better_one_named(project: str, because: str, instead: str) -> None:
    with pytest.raises(UsageError) as refused:
        names_for(project)
    assert because in str(refused.value)
    assert str(refused.value).endswith(f"; try {instead}")
    assert names_for(instead)


def test_no_keyword_and_no_standard_module_is_a_package() -> None:
    for project in {*keyword.kwlist, *sys.stdlib_module_names}:
        with pytest.raises(UsageError):
            names_for(project)
