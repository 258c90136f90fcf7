"""``lpkit doctor`` says beforehand what the real engine does."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.discovery.runner_choice import SWITCH
from lpkit_conformance.doctor.architectures import OWN_SAMPLER
from lpkit_conformance.doctor.examine import Diagnosis, Settings, examine
from lpkit_conformance.doctor.serving import _CHOICES, _READ, read_command
from lpkit_conformance.engine import model
from lpkit_conformance.engine.process import EngineProcess, RemoteError
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.errors import UsageError
from lpkit_conformance.vllm_api.runners import V1, Runner

pytestmark = pytest.mark.engine

PROBES = Path(__file__).parent / "probes"
DRAFTS = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 1, "prompt_lookup_max": 2}
ASK = Ask("a", (1, 2, 1, 2), {"max_tokens": 2, "temperature": 0.0})


def test_no_option_of_vllm_is_taken_for_a_misspelt_one(processes: Callable[[Runner], EngineProcess]) -> None:
    choices = processes(V1).call("doctor_probes:options")
    names = {*choices}
    assert len(names) > 200
    for name in names - {"--config"}:
        read_command(("vllm", "serve", "model", name))
    assert {f"--{name}" for name in _READ} - names <= {"--task"}  # older releases have it
    assert all(set(choices[f"--{name}"]) <= set(values) for name, values in _CHOICES.items())


@pytest.mark.needs_release("0.32")
def test_the_models_with_a_sampler_of_their_own_are_vllms() -> None:
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    files_of_vllm = [(file, file.read_text("utf-8")) for file in Path(spec.origin).parent.rglob("*.py")]
    defining = {file.stem for file, text in files_of_vllm if "def custom_sampler(" in text} - {"interface"}
    (registry,) = (text for file, text in files_of_vllm if file.parts[-2:] == ("models", "registry.py"))
    entries = re.findall(r'"(\w+)": \(\s*"([\w.]+)",\s*"\w+"', registry)
    assert len(entries) > 200
    assert {name for name, module in entries if module.rpartition(".")[2] in defining} == set(OWN_SAMPLER)
    assert defining <= {module.rpartition(".")[2] for _, module in entries}


@pytest.mark.needs_release("0.32")
def test_the_listed_options_are_vllms(processes: Callable[[Runner], EngineProcess]) -> None:
    names = {name.removeprefix("--") for name in processes(V1).call("doctor_probes:options")}
    listed = (files("lpkit_conformance.doctor") / "options.txt").read_text(encoding="utf-8").split()
    assert sorted(names - {f"no-{name}" for name in names}) == listed


@pytest.mark.needs_release("0.32")
@pytest.mark.parametrize(
    ("words", "accepted"),
    [
        (["--max-num-seq", "4"], True),  # the beginning of an option
        (["--logits-proc", "a:A"], True),
        (["--max-num-sequences", "4"], False),
        (["--max-num", "4"], False),  # of several
        (["--max-num-steps", "4"], False),  # of an older release
    ],
)
def test_the_doctor_refuses_the_options_that_vllm_refuses(
    words: list[str], accepted: bool, processes: Callable[[Runner], EngineProcess]
) -> None:
    assert processes(V1).call("doctor_probes:accepts", words) is accepted
    with nullcontext() if accepted else pytest.raises(UsageError, match=f"no option {words[0]} in 0.32.0"):
        read_command(("vllm", "serve", "model", *words), (0, 32, 0))


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., bool]]:
    """vLLM's asynchronous scheduling for a switch and arguments; raises RemoteError where vLLM does not start."""
    folder = tmp_path_factory.mktemp("model")
    model.write(folder, 128, 64)
    with EngineProcess("v1") as process:  # no engine was started here
        yield lambda switch, **given: process.call(
            "doctor_probes:configured", switch, {"model": str(folder), "dtype": "float32", "max_model_len": 64, **given}
        )


@pytest.fixture
def foresee(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """``foresee(folder, runner, **settings)``: the doctor's report on this vLLM, as one with a GPU if on V2."""

    def report(folder: Path, runner: str, **settings: Any) -> Diagnosis:
        monkeypatch.setenv(SWITCH, "0" if runner == "v1" else "1")
        if runner == "v2":
            import vllm  # type: ignore[import-not-found]

            settings["release"] = vllm.__version__.partition("+")[0]
        return examine(Settings(**settings), [str(folder), str(PROBES), *sys.path], tmp_path)

    return report


def outcome(report: Diagnosis) -> tuple[list[str], set[str]]:
    errors = {issue.code for issue in report.issues if issue.level == "error"}
    return [effect for _, _, effect in report.effects()], errors


def events(engine: Any) -> list[Any]:
    found = engine.inspect("engine_probes:take_events")
    assert isinstance(found, list)
    return found


@contextmanager
def drafting_on_v1(folder: Path, *processors: str) -> Iterator[EngineProcess]:
    """An engine in a process of its own: after such an engine, vLLM starts no other in a process."""
    with EngineProcess("v1", sys_path=[folder]) as process:
        process.start(EngineSettings("v1", extra={"speculative_config": DRAFTS}), processors)
        yield process


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_portable_plugin_starts_on_both_runners(engines, installed, foresee, runner: str) -> None:
    folder = installed("portable", both="engine_probes:Both")
    assert outcome(foresee(folder, runner)) == (["starts"], set())
    engine = engines(runner, folders=[folder])
    assert len(engine.generate([ASK])["a"].token_ids) == 2
    assert any(event[0] == "init" for event in events(engine))


def test_a_v1_only_plugin_keeps_a_v2_engine_from_starting(engines, installed, foresee) -> None:
    folder = installed("one-sided", old="engine_probes:V1Probe")
    assert outcome(foresee(folder, "v2")) == (["blocks"], {"blocks-start"})
    with pytest.raises(RemoteError, match="old is not a subclass"):
        engines("v2", folders=[folder])


def test_on_v1_with_speculative_decoding_an_installed_plugin_is_left_out_without_a_word(installed, foresee) -> None:
    folder = installed("one-sided", old="engine_probes:V1Probe", new="engine_probes:V2Probe")
    assert outcome(foresee(folder, "v1", drafts=True)) == (["inactive"] * 2, {"inactive-with-drafts"})
    with drafting_on_v1(folder) as engine:
        assert len(engine.generate([ASK])["a"].token_ids) == 2
        assert events(engine) == []


def test_on_v1_with_speculative_decoding_a_passed_one_is_refused(installed, foresee) -> None:
    spec = "engine_probes:V1Probe"
    folder = installed("nothing")
    assert outcome(foresee(folder, "v1", drafts=True, passed=(spec,))) == (["blocks"], {"draft-refusal"})
    with pytest.raises(RemoteError, match="not supported when speculative decoding"), drafting_on_v1(folder, spec):
        pass


def test_with_speculative_decoding_a_plugin_that_does_not_import_fails_every_request(installed, foresee) -> None:
    folder = installed("broken", gone="no_such_module:P")
    verdicts, errors = outcome(foresee(folder, "v1", drafts=True))
    assert (verdicts, errors) == (["inactive"], {"inactive-with-drafts", "fails-requests"})
    with (
        drafting_on_v1(folder) as engine,
        pytest.raises(RemoteError, match="Failed to load LogitsProcessor plugin"),
    ):
        answer = engine.generate([ASK])["a"]
        assert answer.error is None, answer.error


def test_a_class_behind_two_entry_points_runs_twice(engines, installed, foresee) -> None:
    folder = installed("doubled", one="engine_probes:Both", two="doubled_alias:Both")
    (folder / "doubled_alias.py").write_text("from engine_probes import Both\n", encoding="utf-8")
    assert outcome(foresee(folder, "v1")) == (["starts"] * 2, {"runs-twice"})
    engine = engines("v1", folders=[folder])
    assert [event[0] for event in events(engine)].count("init") == 2


@pytest.mark.parametrize(("value", "message"), [("true", "invalid literal for int"), ("1", "requires Triton")])
def test_a_switch_that_cannot_be_obeyed_keeps_this_vllm_from_starting(
    installed, configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    folder = installed("portable", both="engine_probes:Both")
    monkeypatch.setenv(SWITCH, value)
    report = examine(Settings(), [str(folder), str(PROBES), *sys.path], tmp_path)
    assert outcome(report) == (["blocks"], {"engine-refuses"})
    with pytest.raises(RemoteError, match=message):
        configured(value)


@pytest.mark.parametrize("passed", [False, True], ids=["installed", "passed"])
def test_with_asynchronous_scheduling_an_installed_reader_sees_placeholders(
    engines, installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed: bool
) -> None:
    spec = "doctor_probes:Reader"
    folder = installed("reader", **({} if passed else {"reader": spec}))
    monkeypatch.setenv(SWITCH, "0")
    # As on a GPU, where asynchronous scheduling is the default.
    settings = Settings(release="0.32.0", passed=(spec,) if passed else ())
    report = examine(settings, [str(folder), str(PROBES), *sys.path], tmp_path)
    assert outcome(report) == (["starts"], set() if passed else {"placeholders"})
    extra = {"async_scheduling": True, "max_model_len": 128}
    engine = engines(EngineSettings("v1", extra=extra), [spec] if passed else [], [folder])
    engine.generate([Ask("a", (1, 2, 3), {"max_tokens": 8, "temperature": 0.0})])
    seen = engine.call("doctor_probes:seen")
    assert seen
    assert any(seen) is not passed


def test_on_a_cpu_asynchronous_scheduling_is_off_even_if_asked_for(configured, installed, foresee) -> None:
    folder = installed("reader", reader="doctor_probes:Reader")
    assert outcome(foresee(folder, "v1")) == (["starts"], set())
    assert configured("0", async_scheduling=True) is False
