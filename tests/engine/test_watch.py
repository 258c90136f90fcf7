"""The watcher in real servers and engines of both runners: it blames a wrong plugin, and only that one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lpkit.rules.policy import VARIABLE
from lpkit_conformance import traces
from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine import model
from lpkit_conformance.engine.process import EngineProcess, RemoteError
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.run import failures
from lpkit_conformance.vllm_api.runners import V1, Runner
from lpkit_conformance.watch import QUARANTINE, SWITCH
from lpkit_conformance.watch.run_directory import RUN, read_numbers
from serving import LONGEST, PROBES, VOCAB, Made, Server, never_ending, write_metadata_of_vllm, write_tokenizer

pytestmark = pytest.mark.engine

PROJECT = Path(__file__).parents[2]
NEIGHBOUR, PUSH = "watch_probes:Neighbour", "watch_probes:Push"


def install_entry_points(site: Path) -> None:
    """Write the metadata that pip would, from this project's pyproject.toml.

    The distribution has lpkit's name, so it hides the metadata of an older lpkit that is installed in this environment.
    """
    import tomllib

    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    folder = site / "vllm_lpkit-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-lpkit\nVersion: 1.0\n", encoding="utf-8")
    lines = []
    for group, targets in declared.items():
        lines += [f"[{group}]\n", *(f"{name} = {target}\n" for name, target in targets.items())]
    (folder / "entry_points.txt").write_text("".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    home = tmp_path_factory.mktemp("watched")
    install_entry_points(home / "site")
    write_metadata_of_vllm(home / "site")
    model.write(home / "MODEL", VOCAB, LONGEST)
    never_ending(home / "MODEL")
    write_tokenizer(home / "MODEL")
    (home / "watch.toml").write_text(
        f"budget = 1.0\ninterval = 0.2\nlog_every = 1.0\ndirectory = {json.dumps(str(home))}\n"
    )
    (home / "rules.toml").write_text(
        'receipt = true\ndocuments = {least = [{rule = "bias", ids = [3], values = [9]}]}\n'
    )
    return Made(home, home / "site", home)


@pytest.fixture(scope="module")
def servers(made: Made, runners: tuple[str, ...]) -> Iterator[dict[str, Server]]:
    """Start a server on each runner that loads processors."""
    with ExitStack() as stack:
        started = {}
        for runner in runners:
            environment = {
                "PYTHONPATH": f"{PROBES}:{made.environment(made.site)['PYTHONPATH']}",
                SWITCH: str(made.home / "watch.toml"),
                VARIABLE: str(made.home / "rules.toml"),
            }
            passed = [PUSH, NEIGHBOUR, "lpkit.rules.chain:Rules"]
            started[runner] = Server(runner, made, ["--logits-processors", *passed], environment)
            stack.callback(started[runner].close)
        for server in started.values():
            server.wait()
        yield started


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


def ask(server: Server, number: int) -> int:
    """Send a request, and return its status; every second request uses the processors."""
    extra = {"vllm_xargs": {"push": 1.0}} if number % 2 else {}
    body = {"model": "MODEL", "prompt": f"w{number + 3}", "max_tokens": 8, **extra}
    return server.curl(json.dumps(body))[0]


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def violations(server: Server) -> dict[str, Any]:
    """Send requests, and return what the watcher says of them."""
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda number: ask(server, number), range(40))) == {200}
    until(lambda: json.loads(server.get("/lpkit/violations"))["violations"], "no violation was reported")
    page: dict[str, Any] = json.loads(server.get("/lpkit/violations"))
    return page


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_the_watcher_blames_a_defective_plugin_and_not_the_correct_one_next_to_it(
    servers: dict[str, Server], runner: str
) -> None:
    page = violations(servers[runner])
    assert list(page["counts"]) == [NEIGHBOUR]
    assert list(page["counts"][NEIGHBOUR]) == ["touched"]
    first = page["violations"][0]
    assert first["runner"] == runner
    assert first["arguments"] == {}  # those of the request whose row was changed
    trace = traces.load(first["trace"])
    assert trace.runner == runner
    assert trace.settings["watch"]["uses"][trace.settings["watch"]["request"]] is False


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_the_numbers_are_in_the_metrics_and_in_the_log(servers: dict[str, Server], runner: str) -> None:
    server = servers[runner]
    assert ask(server, 1) == 200

    def metric(name: str, **labels: str) -> float:
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line for line in server.get("/lpkit/metrics").splitlines() if line.startswith(f"{name}{{")]
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in wanted))

    until(lambda: metric("lpkit_watch_rows_total", processor=PUSH), "no row was compared")
    assert metric("lpkit_watch_active") == 1
    assert metric("lpkit_watch_errors_total") == 0
    # On a busy machine, the watcher samples fewer steps than the settings allow.
    assert 0 < metric("lpkit_watch_sampled_steps_total") <= metric("lpkit_watch_steps_total")
    assert metric("lpkit_watch_calls_total", processor=PUSH, method="apply") > 0
    assert metric("lpkit_watch_violations_total", processor=PUSH) == 0
    until(lambda: "rows compared" in server.log, "the log has no summary")


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_receipts_of_requests_are_in_the_log_and_their_sums_in_the_routes(
    servers: dict[str, Server], runner: str
) -> None:
    server = servers[runner]
    ban = '[{"rule": "ban", "phrases": [7], "when": {"until": 4}}]'
    for document, label in ((ban, "mine"), ("least", "yours"), (ban, "next")):
        extra = {"vllm_xargs": {"rules": document, "rules_receipt": label}}
        assert server.curl(json.dumps({"model": "MODEL", "prompt": "w9", "max_tokens": 6, **extra}))[0] == 200
    until(lambda: "lpkit rules: receipt 'yours'" in server.log, "no receipt was logged")
    (mine,) = re.findall(r"receipt 'mine': /0 ban (\d+) of (\d+) rows", server.log)
    assert 4 <= int(mine[0]) < int(mine[1])
    assert "receipt 'yours': documents.least/0 bias" in server.log
    until(lambda: len(json.loads(server.get("/lpkit/rules"))) == 2, "no counts in the route")
    counted = {(item["rule"], item["step"]): item for item in json.loads(server.get("/lpkit/rules"))}
    assert counted["ban", ""]["requests"] >= 1
    assert counted["bias", "documents.least/0"]["rows"] >= 6
    assert 'rule="bias",step="documents.least/0"} 1' in server.get("/lpkit/metrics")


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_the_servers_own_routes_are_as_they_were(servers: dict[str, Server], runner: str) -> None:
    assert servers[runner].metric("vllm:iteration_tokens_total_count") > 0


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


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_trace_of_a_server_fails_again_in_a_real_engine_and_a_correct_plugin_passes_it(
    servers: dict[str, Server], runner: str
) -> None:
    trace = Path(violations(servers[runner])["violations"][0]["trace"])
    failure = failures.load(trace)
    assert (failure.target, failure.host) == (NEIGHBOUR, runner)
    wrong = failures.rerun_on_engine(failure)
    assert failures.outcome_on_engine(wrong) == "failing"
    given = failures.load(trace, ['{"extra_args": {"push": 2.0}}'])
    correct = failures.rerun_on_engine(replace(given, target=PUSH))
    assert failures.outcome_on_engine(correct) == "fixed", correct
    for result in (wrong, correct):
        (batches,) = [note for note in result.notes if "batches" in note]
        met, wanted = map(int, re.findall(r"\d+", batches)[:2])
        assert met >= wanted / 2 > 0, batches


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
