"""`lpkit check --trace` and `lpkit replay` reproduce a server's violation from its saved trace."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lpkit.runtime import Request, Scheduler, V1AsyncEngine, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_conformance import run, traces
from lpkit_conformance.errors import TraceError, UsageError
from lpkit_conformance.report.replay import lines
from lpkit_conformance.results import CheckResult
from lpkit_conformance.run import failures
from lpkit_conformance.vllm_api.runners import Runner
from lpkit_conformance.watch.install import watch
from lpkit_conformance.watch.settings import WatchSettings

PROBES = Path(__file__).parents[2] / "engine" / "probes" / "watch_probes.py"
GOLDEN = Path(__file__).parents[2] / "contracts" / "golden" / "failures"
SHIPPED = Path(traces.__file__).with_name("v1_churn.jsonl")
RUNNERS = pytest.mark.parametrize("runner", ["v1", "v2"])

pytestmark = pytest.mark.usefixtures("in_process")


GIVEN = ('{"extra_args": {"push": 3.0}}',)
ENGINES = {"v1": V1Engine, "v2": V2Engine}


def saved(
    cls: Any, runner: Runner, folder: Path, values: bool = False, engine: Any = None, blocks: int = 0, **of_engine: Any
) -> Path:
    """Return the first trace that a watched engine saves for this class; few ``blocks`` make it preempt requests."""
    folder.mkdir(exist_ok=True)
    keys = {f"{cls.__module__}:{cls.__name__}": ["push"]}
    settings = WatchSettings(budget=1.0, traces=1, values=values, arguments=keys)
    tallies = []

    def factory(config: Any, *rest: Any) -> Any:
        processor = cls(config, *rest)
        tallies.append(watch(runner, [processor], (config, *rest), settings, folder, "0.0.0"))
        return processor

    made = (engine or ENGINES[runner])([factory], vocab_size=128, device="cpu", **of_engine)
    scheduler = Scheduler(made, num_blocks=blocks, block_size=2) if blocks else Scheduler(made)
    for number in range(9 if blocks else 4):
        params = SamplingParams(temperature=0.0, extra_args={"push": 7.5} if number % 2 else None)
        scheduler.submit(Request(f"q{number}", params, [1, 2], 5), number)
    scheduler.run()
    end = time.monotonic() + 10
    while not tallies[0].violations:
        assert time.monotonic() < end, "no violation was kept"
        time.sleep(0.01)
    return Path(tallies[0].violations[0].trace)


@pytest.fixture(scope="module")
def probes() -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location("watch_probes", PROBES)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(name: str, trace: Path, **options: Any) -> CheckResult:
    (target,) = run.run([f"{PROBES}:{name}"], run.Options(trace=trace, **options)).targets
    (result,) = target.checks
    return result


@pytest.mark.parametrize(("name", "runner"), [("Neighbour", "v1"), ("Poison", "v2")])
def test_a_saved_trace_reproduces_what_the_server_saw(name: str, runner: Runner, probes: Any, tmp_path: Path) -> None:
    trace = saved(getattr(probes, name), runner, tmp_path)
    result = check(name, trace)
    assert (result.code, result.host, result.status) == ("LP220", runner, "failed")
    assert result.finding is not None
    assert result.finding.where["trace"] == str(trace)
    assert {"step", "request"} <= set(result.finding.where)
    again = failures.load(Path(failures.save_check(f"{PROBES}:{name}", result, tmp_path / "f").finding.saved))  # type: ignore[union-attr]
    assert again.plan.trace == (str(trace), "recorded")


@RUNNERS
def test_a_request_that_resumes_is_replayed_with_the_outputs_that_it_resumes_with(
    runner: Runner, probes: Any, tmp_path: Path
) -> None:
    """A trace with its outputs as part of its prompt clears the plugin: it tells the two apart."""
    name = f"Keeps{runner.upper()}"
    file = saved(getattr(probes, name), runner, tmp_path, blocks=5, max_num_seqs=3)
    assert traces.load(file).settings["watch"]["kind"] == "touched"
    assert check(name, file).status == "failed"  # with a case from the names and types of the trace's arguments


def test_a_trace_of_an_asynchronous_server_says_so_and_which_tokens_were_unknown(probes: Any, tmp_path: Path) -> None:
    plain = traces.load(saved(probes.Neighbour, "v1", tmp_path / "plain"))
    assert "async_scheduling" not in plain.settings
    assert not any(step.placeholders for step in plain.v1_steps)
    file = saved(probes.Neighbour, "v1", tmp_path / "late", engine=V1AsyncEngine)
    trace = traces.load(file)
    assert trace.settings["async_scheduling"] is True
    assert {count for step in trace.v1_steps for count in step.placeholders.values()} == {1}
    assert check("Neighbour", file).status == "failed"


def test_a_trace_names_the_drafter_and_not_its_model(probes: Any, tmp_path: Path) -> None:
    file = saved(probes.Neighbour, "v2", tmp_path, num_speculative_tokens=3)
    assert traces.load(file).settings["speculative_config"] == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 5,
        "prompt_lookup_min": 5,
    }
    assert check("Neighbour", file).status == "failed"


@pytest.mark.parametrize(
    ("values", "cases", "status"), [(True, (), "passed"), (False, (), "skipped"), (False, GIVEN, "passed")]
)
@RUNNERS
def test_a_correct_processor_passes_on_the_trace_of_a_wrong_one_if_the_arguments_are_known(
    runner: Runner, values: bool, cases: tuple[str, ...], status: str, probes: Any, tmp_path: Path
) -> None:
    trace = saved(probes.Neighbour, runner, tmp_path, values=values)
    report = run.run([f"{PROBES}:Push"], run.Options(trace=trace, cases=cases))
    (result,) = report.targets[0].checks
    assert (result.status, report.exit_code) == (status, 0 if status == "passed" else 2)
    if values:
        assert report.targets[0].settings["cases"] == [{"extra_args": {"push": 7.5}}]
    if status == "skipped":
        assert result.message == (
            "passes, which proves nothing: the trace has no values of arguments, so the requests had others; "
            "give them with --case"
        )


def with_arguments(trace: Path, arguments: list[dict[str, Any]], values: bool, file: Path) -> Path:
    """Write the trace with these arguments of its requests, in turns."""
    head, *steps = trace.read_text(encoding="utf-8").splitlines()
    data = json.loads(head)
    watch = data["settings"]["watch"]
    watch["arguments"] = {name: arguments[nth % len(arguments)] for nth, name in enumerate(watch["arguments"])}
    watch["uses"] = dict.fromkeys(watch["uses"], True)
    watch |= {"values": values, "processor": "watch_probes:Trips"}
    file.write_text("\n".join([json.dumps(data), *steps]) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("arguments", "values", "cases", "outcome", "said"),
    [
        (
            [{"push": "<float>"}],
            False,
            (),
            "silent",
            "DID NOT REPRODUCE  LP220[v1] passes, which proves nothing: the trace has no values",
        ),
        ([{"push": "<float>"}], False, ('{"extra_args": {"push": 13.0}}',), "failing", "STILL FAILING"),
        (
            [{"push": "<float>"}],
            False,
            GIVEN,
            "fixed",
            "PASSED  LP220[v1] passes these operations with the arguments recorded or given.",
        ),
        ([{"push": 3.0}, {"push": 13.0}], True, (), "failing", "STILL FAILING"),
        (
            [{"push": 3.0}, {"push": 2.0}],
            True,
            (),
            "fixed",
            "PASSED  LP220[v1] passes these operations with the arguments recorded or given.",
        ),
    ],
)
def test_a_trace_is_cleared_only_with_the_arguments_of_the_server(
    arguments: list[dict[str, Any]],
    values: bool,
    cases: tuple[str, ...],
    outcome: str,
    said: str,
    probes: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The class raises for the argument 13: a kind of requests that other runs leave out."""
    trace = with_arguments(saved(probes.Neighbour, "v1", tmp_path), arguments, values, tmp_path / "changed.jsonl")
    monkeypatch.syspath_prepend(PROBES.parent)
    failure = failures.load(trace, cases)
    result = failures.rerun(failure)
    assert failures.outcome(failure, result) == outcome
    assert said in list(lines(failure, result, failures.outcome(failure, result)))[-1]


def test_a_trace_with_more_arguments_than_are_replayed_is_not_cleared(
    probes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = with_arguments(
        saved(probes.Neighbour, "v1", tmp_path), [{"push": 3.0}, {"push": 2.0}], True, tmp_path / "changed.jsonl"
    )
    monkeypatch.setattr(run, "MOST_CASES", 1)
    (result,) = run.run([f"{PROBES}:Trips"], run.Options(trace=trace)).targets[0].checks
    assert (result.status, "2 sets of arguments, of which 1 were given" in result.message) == ("skipped", True)


def test_a_failure_that_needs_no_arguments_is_replayed_without(
    probes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = with_arguments(saved(probes.Neighbour, "v1", tmp_path), [{}], False, tmp_path / "changed.jsonl")
    monkeypatch.syspath_prepend(PROBES.parent)
    failure = replace(failures.load(trace), target=f"{PROBES}:Always")
    result = failures.rerun(failure)
    last = list(lines(failure, result, failures.outcome(failure, result)))[-1]
    assert last.startswith(
        "PASSED  LP220[v1] passes these operations without arguments, as the trace's requests had none."
    )
    idle = replace(failure, target=f"{PROBES}:Push")
    assert failures.outcome(idle, failures.rerun(idle)) == "silent"  # no case is derived: it never acts


def test_in_a_real_engine_the_checks_of_served_requests_judge_the_trace(probes: Any, tmp_path: Path) -> None:
    trace = saved(probes.Neighbour, "v2", tmp_path)
    plan = run.with_trace(run.plan_for(run.Options()), run.Options(engine="vllm"), trace)
    assert (plan.hosts, plan.select, plan.trace) == (("v2",), ("LP901", "LP902", "LP903"), (str(trace), "recorded"))


def test_lpkit_replay_plays_a_trace_on_the_processor_that_it_names(
    probes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = saved(probes.Neighbour, "v1", tmp_path)
    monkeypatch.syspath_prepend(PROBES.parent)
    failure = failures.load(trace, ['{"extra_args": {"push": 3.0}}'])
    assert (failure.target, failure.code, failure.host) == ("watch_probes:Neighbour", "LP220", "v1")
    assert failure.plan.cases[0].fields == {"extra_args": {"push": 3.0}}
    assert failures.outcome(failure, failures.rerun(failure)) == "failing"


def test_a_trace_that_names_no_processor_and_a_case_for_a_saved_failure_are_refused(
    probes: Any, tmp_path: Path
) -> None:
    for file, cases, said in (
        (SHIPPED, (), "was not saved by lpkit watch: it names no processor to blame"),
        (GOLDEN / "program.json", ("{}",), "holds its case: omit --case"),
    ):
        with pytest.raises(UsageError, match=said):
            failures.load(file, cases)
    broken = tmp_path / "broken.jsonl"
    broken.write_text(SHIPPED.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(TraceError, match="the header announces"):
        failures.load(broken)


def test_options_that_say_otherwise_are_refused(probes: Any, tmp_path: Path) -> None:
    trace = saved(probes.Neighbour, "v1", tmp_path)
    for options in ({"select": ("LP301",)}, {"quick": True}, {"hosts": ("v2",)}):
        with pytest.raises(UsageError, match="omit"):
            run.with_trace(run.plan_for(run.Options()), run.Options(**options), trace)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="was not saved by lpkit watch"):
        run.with_trace(run.plan_for(run.Options()), run.Options(), SHIPPED)
    with pytest.raises(TraceError, match="no such file"):
        run.with_trace(run.plan_for(run.Options()), run.Options(), tmp_path / "gone.jsonl")
