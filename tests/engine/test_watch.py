"""The watcher in real engines of both runners, in which no server runs: ``test_online.py`` has the servers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance import traces
from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine.process import EngineProcess, RemoteError
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.vllm_api.runners import V1, Runner
from lpkit_conformance.watch import QUARANTINE, SWITCH
from lpkit_conformance.watch.run_directory import RUN, read_numbers
from serving import Made, install_entry_points, until, write_settings

pytestmark = pytest.mark.engine

PUSH = "watch_probes:Push"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    home = tmp_path_factory.mktemp("watched")
    install_entry_points(home / "site")
    write_settings(home)
    return Made(home, home / "site", home)


LOAD_PLUGINS = """
import sys
from vllm import plugins
plugins.load_general_plugins()
getattr(plugins, "load_endpoint_plugins", tuple)()
print(*sorted(name for name in sys.modules if name.partition(".")[0] in ("lpkit", "lpkit_conformance", "lpkit_cli")))
"""


def test_without_the_switch_vllm_prints_nothing_about_lpkit_and_loads_one_small_module(made: Made) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD_PLUGINS],
        env=made.environment(made.site),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    *printed, loaded = done.stdout.splitlines()
    assert loaded.split() == ["lpkit_conformance", "lpkit_conformance.watch"]
    assert "lpkit" not in "".join(printed) + done.stderr


def watched(made: Made, folder: Path, runner: Runner = V1, quarantine: str = "") -> EngineProcess:
    env = {SWITCH: str(made.home / "watch.toml"), RUN: str(folder), QUARANTINE: quarantine}
    return EngineProcess(runner, sys_path=[made.site], env=env)


Watched = tuple[Runner, EngineProcess, Path]


@pytest.fixture(scope="module", params=["v1", "v2"])
def quarantined(made: Made, tmp_path_factory: Any, request: pytest.FixtureRequest) -> Iterator[Watched]:
    """A process whose engines are watched, with a quarantine, and the folder of its numbers and traces."""
    folder = tmp_path_factory.mktemp("run")
    with watched(made, folder, request.param, quarantine="1") as engine:
        yield request.param, engine, folder


def requests(count: int) -> list[Ask]:
    """Return requests of mixed lengths, three per step, half of them with the argument."""
    return [
        Ask(
            f"q{number}",
            (number % 200 + 3, 5),
            {
                "max_tokens": 1 + number % 6,
                "temperature": float(number % 3) / 2,
                "extra_args": {"push": 1.0} if number % 2 else None,
            },
            at=number // 3,
        )
        for number in range(count)
    ]


def test_a_correct_plugin_causes_no_report_in_many_requests(quarantined: Watched) -> None:
    runner, engine, folder = quarantined
    before, count = set(folder.glob("*.jsonl")), 600 if runner == V1 else 60
    engine.start(EngineSettings(runner), [PUSH])
    assert len(engine.generate(requests(count))) == count

    def found() -> dict[str, Any]:
        (numbers,) = read_numbers(folder).values()
        return numbers

    until(lambda: found()["processors"][PUSH]["rows"] > count, "few rows were compared")
    assert found()["processors"][PUSH]["violations"] == {}
    assert (found()["errors"], found()["active"]) == (0, True)
    assert set(folder.glob("*.jsonl")) == before


def test_with_a_quarantine_the_engine_goes_on_without_the_processor_for_the_request_at_fault(
    quarantined: Watched, engines: Callable[..., EngineProcess]
) -> None:
    runner, engine, folder = quarantined
    before = set(folder.glob("*.jsonl"))

    def asks(odd: dict[str, Any] | None) -> list[Ask]:
        extras = ({"push": 3.0}, None, {"push": 3.0}, odd, *({"push": 3.0}, None) * 2)
        params = {"max_tokens": 5, "temperature": 0.0}
        return [Ask(f"q{n}", (n + 3, 5), {**params, "extra_args": extra}, at=n) for n, extra in enumerate(extras)]

    def counted() -> list[tuple[int, int, bool]]:
        found = [numbers["processors"].get("watch_probes:Trips") for numbers in read_numbers(folder).values()]
        return [(item["exceptions"], item["quarantined"], item["off"]) for item in found if item]

    engine.start(EngineSettings(runner), ["watch_probes:Trips"])
    answers = engine.generate(asks({"push": 13.0}))
    until(lambda: counted() == [(1, 1, False)], "the exception was not counted")
    until(lambda: set(folder.glob("*.jsonl")) - before, "no trace was saved")
    expected = engines(runner, [PUSH]).generate(asks(None))
    assert [answer.token_ids for answer in answers.values()] == [answer.token_ids for answer in expected.values()]


def test_an_exception_that_ends_the_engine_has_left_its_evidence(made: Made, tmp_path: Path) -> None:
    with watched(made, tmp_path) as engine:
        engine.start(EngineSettings(V1), ["watch_probes:Breaks"])
        with pytest.raises(RemoteError, match="a lookup failed"):
            engine.generate(requests(9))
        until(lambda: any(found["violations"] for found in read_numbers(tmp_path).values()), "no violation was counted")
        until(lambda: list(tmp_path.glob("*.jsonl")), "no trace was saved")
    (found,) = read_numbers(tmp_path).values()
    (violation,) = found["violations"]
    assert re.fullmatch(r"apply raised RuntimeError at watch_probes.py:\d+", violation["got"])
    assert len(traces.load(violation["trace"]).v1_steps[-1].rows) == 3
