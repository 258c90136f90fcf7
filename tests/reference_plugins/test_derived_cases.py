"""Each plugin can be judged where it is installed, without its project's cases: its parameters tell enough."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.activity.search import ENOUGH, search
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.settings.cases import Case

PLUGINS = sorted((Path(__file__).resolve().parents[2] / "reference_plugins").iterdir())


def processor(plugin: Path) -> Any:
    package = importlib.import_module(plugin.name.replace("-", "_"))
    return getattr(package, package.__all__[0])


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_a_case_with_which_it_acts_soon_and_often_is_derived(plugin: Path) -> None:
    found = search(PluginUnderTest(plugin.name, processor(plugin), "v2", Case()))
    assert found is not None
    assert not found.case.generated
    assert found.soon >= ENOUGH
    assert found.early >= 9
