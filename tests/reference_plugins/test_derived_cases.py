"""Each plugin can be judged where it is installed, without its project's cases: its parameters suffice."""

from __future__ import annotations

from pathlib import Path

import pytest
from lpkit_conformance.activity.search import ENOUGH, search
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from shipped import PLUGINS, load

FEW = ("allowed-tokens", "dry", "forced-sequence", "penalties", "thinking-budget", "truncation")
"""Lists, several parameters, parameters of which one is enough; `make broad` has the others."""


@pytest.mark.parametrize(
    "plugin",
    [
        pytest.param(plugin, id=plugin.name, marks=() if plugin.name.endswith(FEW) else pytest.mark.broad)
        for plugin in PLUGINS
    ],
)
def test_a_case_with_which_it_acts_soon_and_often_is_derived(plugin: Path) -> None:
    found = search(Subject.of(plugin.name, load(plugin), "v2", Case()))
    assert found is not None
    assert not found.case.generated
    assert found.soon >= ENOUGH
    assert found.early >= 9 or found.early <= found.soon + 2  # or at the beginning of a reply, and for a relative later
