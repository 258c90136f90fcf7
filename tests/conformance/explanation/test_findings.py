"""The line of a method, and the style of a class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.explanation.findings import method_location, raised, style_of
from lpkit_conformance.hosts import PluginError
from zoo.bases import Boost
from zoo.lp201.adapter import LateBinding
from zoo.lp201.portable import LastAdmitted
from zoo.lp202 import StaleOnDecline
from zoo.lp221 import NeedsEos


@pytest.mark.parametrize("name", ["apply", "update_state", "add_request", "__init__"])
@pytest.mark.parametrize("plugin", [LateBinding, LastAdmitted, NeedsEos])
def test_no_line_is_that_of_a_class(plugin: type, name: str) -> None:
    file, _, line = method_location(plugin, name).rpartition(":")
    assert " def " in Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]


@pytest.mark.parametrize(
    ("cls", "host", "style"),
    [
        (StaleOnDecline, "v1", "raw"),
        (Boost, "v2", "raw"),
        (LastAdmitted, "v1", "portable"),
        (LastAdmitted, "v2", "portable"),
        (LateBinding, "v2", "adapter"),
    ],
)
def test_the_style_is_what_the_author_wrote(cls: Any, host: str, style: str) -> None:
    assert style_of(cls, host) == style


class FromATable(Boost):
    """Its ``apply`` is a part of a longer statement, which no parser reads."""

    METHODS = {
        "apply": lambda self, logits, ctx: None,
    }
    apply = METHODS["apply"]


def test_a_method_without_a_def_has_its_line() -> None:
    finding = raised(FromATable, PluginError("apply", "returned None"))
    file, _, line = finding.location.rpartition(":")
    assert '"apply": lambda' in Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
