"""The watcher in a real server of both runners, and in a real engine: what it finds, and that it blames nobody else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance import failures, traces
from lpkit_conformance.engine import model
from lpkit_conformance.engine.process import EngineProcess, RemoteError
from lpkit_conformance.engine.tiny import Ask, EngineSettings
from lpkit_conformance.watch.run_directory import RUN, read_numbers
from lpkit_conformance.watch.switch import SWITCH
from serving import LONGEST, PROBES, VOCAB, Made, Server, never_ending, write_metadata_of_vllm, write_tokenizer

pytestmark = pytest.mark.engine

PROJECT = Path(__file__).parents[2]
NEIGHBOUR, PUSH = "watch_probes:Neighbour", "watch_probes:Push"


def install_entry_points(site: Path) -> None:
    """As pip would, from this project's own pyproject.toml."""
    import tomllib

    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    folder = site / "watcher-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: watcher\nVersion: 1.0\n", encoding="utf-8")
    lines = []
    for group in ("vllm.general_plugins", "vllm.endpoint_plugins"):
        lines += [f"[{group}]\n", *(f"{name} = {target}\n" for name, target in declared[group].items())]
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
    return Made(home, home / "site", home)


@pytest.fixture(scope="module")
def servers(made: Made, runners: tuple[str, ...]) -> Iterator[dict[str, Server]]:
    """One on each runner that loads processors, started side by side."""
    with ExitStack() as stack:
        started = {}
        for runner in runners:
            environment = {
                "PYTHONPATH": f"{PROBES}:{made.environment(made.site)['PYTHONPATH']}",
                SWITCH: str(made.home / "watch.toml"),
                "VLLM_PLUGINS": "lpkit_watch",
            }
            started[runner] = Server(runner, made, ["--logits-processors", PUSH, NEIGHBOUR], environment)
            stack.callback(started[runner].close)
        for server in started.values():
            server.wait()
        yield started


def ask(server: Server, number: int) -> int:
    """Every other request uses the processors."""
    extra = {"vllm_xargs": {"push": 1.0}} if number % 2 else {}
    body = {"model": "MODEL", "prompt": f"w{number + 3}", "max_tokens": 8, **extra}
    return server.curl(json.dumps(body))[0]


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_defective_plugin_is_found_while_serving_and_the_correct_one_beside_it_is_not_blamed(
    servers: dict[str, Server], runner: str
) -> None:
    server = servers[runner]
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda number: ask(server, number), range(40))) == {200}
    until(lambda: json.loads(server.get("/lpkit/violations"))["violations"], "no violation was told")
    told = json.loads(server.get("/lpkit/violations"))
    assert list(told["counts"]) == [NEIGHBOUR]
    assert list(told["counts"][NEIGHBOUR]) == ["touched"]
    first = told["violations"][0]
    assert first["runner"] == runner
    assert first["arguments"] == {}  # of the request whose row was changed, which gave none
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
    # On a busy machine it backs off whatever it is told to sample.
    assert 0 < metric("lpkit_watch_sampled_steps_total") <= metric("lpkit_watch_steps_total")
    assert metric("lpkit_watch_calls_total", processor=PUSH, method="apply") > 0
    assert metric("lpkit_watch_violations_total", processor=PUSH) == 0
    until(lambda: "rows compared" in server.log, "the log has no summary")


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_the_servers_own_routes_are_as_they_were(servers: dict[str, Server], runner: str) -> None:
    assert servers[runner].metric("vllm:iteration_tokens_total_count") > 0


def start(made: Made, folder: Path, processor: str, runner: str = "v1") -> EngineProcess:
    return EngineProcess(
        EngineSettings(runner),  # type: ignore[arg-type]
        [processor],
        sys_path=[PROBES, made.site],
        env={SWITCH: str(made.home / "watch.toml"), RUN: str(folder)},
    )


def requests(count: int, length: int) -> list[Ask]:
    """In twos and threes, short ones after long ones, half of them with the argument."""
    return [
        Ask(
            f"q{number}",
            (number % 200 + 3, 5),
            {
                "max_tokens": 1 + number % length,
                "temperature": float(number % 3) / 2,
                "extra_args": {"push": 1.0} if number % 2 else None,
            },
            at=number // 3,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(("runner", "count"), [("v1", 600), ("v2", 60)])
def test_a_correct_plugin_causes_no_report_in_many_requests(
    made: Made, tmp_path: Path, runner: str, count: int
) -> None:
    with start(made, tmp_path, PUSH, runner) as engine:
        answers = engine.generate(requests(count, 6))
        assert len(answers) == count
        until(lambda: rows(tmp_path) > count, "few rows were compared")
    (found,) = read_numbers(tmp_path).values()
    assert found["processors"][PUSH]["violations"] == {}
    assert (found["errors"], found["active"]) == (0, True)
    assert not list(tmp_path.glob("*.jsonl"))


def rows(folder: Path) -> int:
    return sum(int(found["processors"][PUSH]["rows"]) for found in read_numbers(folder).values())


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_trace_of_a_server_fails_again_in_a_real_engine_and_a_correct_plugin_passes_it(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    with start(made, tmp_path, NEIGHBOUR, runner) as engine:
        engine.generate(requests(12, 6))
        until(lambda: list(tmp_path.glob("*.jsonl")), "no trace was saved")
    monkeypatch.syspath_prepend(PROBES)
    failure = failures.load(next(iter(tmp_path.glob("*.jsonl"))))
    assert (failure.target, failure.host) == (NEIGHBOUR, runner)
    wrong = failures.rerun_on_engine(failure)
    assert failures.outcome_on_engine(wrong) == "failing"
    correct = failures.rerun_on_engine(replace(failure, target=PUSH))
    assert failures.outcome_on_engine(correct) == "fixed", correct
    for result in (wrong, correct):
        (batches,) = [note for note in result.notes if "batches" in note]
        met, wanted = map(int, re.findall(r"\d+", batches)[:2])
        assert met >= wanted / 2 > 0, batches


def test_an_exception_that_ends_the_engine_has_left_its_evidence(made: Made, tmp_path: Path) -> None:
    with start(made, tmp_path, "watch_probes:Breaks") as engine, pytest.raises(RemoteError, match="a lookup failed"):
        engine.generate(requests(9, 6))
    (found,) = read_numbers(tmp_path).values()
    (violation,) = found["violations"]
    assert violation["got"] == "apply raised RuntimeError: a lookup failed"
    assert len(traces.load(violation["trace"]).v1_steps[-1].rows) == 3
