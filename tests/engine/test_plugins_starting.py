"""Plugins that keep an engine from starting, and plugins that do not, as ``lpkit list`` predicts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lpkit_conformance.discovery.installed import take_inventory
from lpkit_conformance.engine.process import ClassRef, EngineProcess, RemoteError
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.engine_checks.asks import Ask

pytestmark = pytest.mark.engine

PROBES = Path(__file__).parent / "probes"


def answers_something(engine: EngineProcess) -> bool:
    answer = engine.generate([Ask("a", (1, 2), {"max_tokens": 2, "temperature": 0.0})])["a"]
    return len(answer.token_ids) == 2


@pytest.mark.parametrize(("runner", "probe"), [("v1", "V1Probe"), ("v2", "V2Probe")])
def test_a_plugin_of_one_interface_runs_on_its_own_runner(engines, installed, runner: str, probe: str) -> None:
    folder = installed("one-sided", one=f"engine_probes:{probe}")
    assert take_inventory([str(folder), str(PROBES), *sys.path]).starts(runner) is True
    engine = engines(runner, sys_path=[folder])
    assert engine.info["runner"] == runner
    assert answers_something(engine)
    engine.close()


def test_an_installed_v1_only_plugin_keeps_a_v2_engine_from_starting(engines, installed, tmp_path: Path) -> None:
    folder = installed("one-sided", one="engine_probes:V1Probe")
    inventory = take_inventory([str(folder), str(PROBES), *sys.path])
    assert inventory.starts("v2") is False
    assert [plugin.name for plugin in inventory.blocking("v2")] == ["one"]
    with pytest.raises(RemoteError) as caught:
        engines("v2", sys_path=[folder])
    assert "plugin one is not a subclass" in str(caught.value)
    assert "V1-interface plugins are not supported by the V2 model runner" in str(caught.value)


def test_a_v2_only_plugin_dies_in_a_v1_engine(engines, installed) -> None:
    folder = installed("one-sided", one="engine_probes:V2Probe")
    assert take_inventory([str(folder), str(PROBES), *sys.path]).starts("v1") is False
    with pytest.raises(RemoteError) as caught:
        engines("v1", sys_path=[folder])
    assert caught.value.kind == "TypeError"
    assert "V2Probe.__init__() takes 3 positional arguments but 4 were given" in str(caught.value)


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_the_wrong_interface_is_refused_when_passed_and_the_next_engine_starts(engines, runner: str) -> None:
    wrong = "engine_probes:V2Probe" if runner == "v1" else "engine_probes:V1Probe"
    engine: EngineProcess = engines(runner)
    for way in (wrong, ClassRef(wrong)):
        with pytest.raises(RemoteError) as caught:
            engine.restart(EngineSettings(runner), [way])  # type: ignore[arg-type]
        assert "subclass of" in str(caught.value)
        assert wrong.partition(":")[2] in str(caught.value)
    engine.restart(EngineSettings(runner))  # type: ignore[arg-type]
    assert answers_something(engine)
