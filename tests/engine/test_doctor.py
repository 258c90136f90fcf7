"""``lpkit doctor`` says beforehand what the real engine does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.discovery.releases import SWITCH
from lpkit_conformance.doctor.examine import Diagnosis, Settings, examine
from lpkit_conformance.doctor.serving import _READ, read_command
from lpkit_conformance.engine import model
from lpkit_conformance.engine.process import RemoteError
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.engine_checks.asks import Ask
from unusual_engines import UnusualEngine

pytestmark = pytest.mark.engine

OPTIONS = """
import json
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
actions = make_arg_parser(FlexibleArgumentParser())._actions
print(json.dumps([name for action in actions for name in action.option_strings if name.startswith("--")]))
"""

PROBES = Path(__file__).parent / "probes"
DRAFTS = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 1, "prompt_lookup_max": 2}
ASK = Ask("a", (1, 2, 1, 2), {"max_tokens": 2, "temperature": 0.0})
PLAIN = """
import sys
from vllm import LLM
LLM(model=sys.argv[1], skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=64)
"""


def test_no_option_of_vllm_is_taken_for_a_misspelt_one() -> None:
    done = subprocess.run([sys.executable, "-c", OPTIONS], capture_output=True, text=True, check=True)
    names = json.loads(done.stdout.splitlines()[-1])
    assert len(names) > 200
    for name in set(names) - {"--config"}:
        read_command(("vllm", "serve", "model", name))
    assert {f"--{name}" for name in _READ} - set(names) <= {"--task"}  # older releases have it


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


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_portable_plugin_starts_on_both_runners(engines, installed, foresee, runner: str) -> None:
    folder = installed("portable", both="engine_probes:Both")
    assert outcome(foresee(folder, runner)) == (["starts"], set())
    engine = engines(runner, sys_path=[folder])
    assert engine.info["runner"] == runner
    assert len(engine.generate([ASK])["a"].token_ids) == 2
    assert any(event[0] == "init" for event in events(engine))
    engine.close()


def test_a_v1_only_plugin_keeps_a_v2_engine_from_starting(engines, installed, foresee) -> None:
    folder = installed("one-sided", old="engine_probes:V1Probe")
    assert outcome(foresee(folder, "v2")) == (["blocks"], {"blocks-start"})
    with pytest.raises(RemoteError, match="old is not a subclass"):
        engines("v2", sys_path=[folder])


def test_on_v1_with_speculative_decoding_an_installed_plugin_is_left_out_without_a_word(
    engines, installed, foresee
) -> None:
    folder = installed("one-sided", old="engine_probes:V1Probe", new="engine_probes:V2Probe")
    assert outcome(foresee(folder, "v1", drafts=True)) == (["inactive"] * 2, {"inactive-with-drafts"})
    engine = engines(EngineSettings("v1", extra={"speculative_config": DRAFTS}), sys_path=[folder])
    assert engine.info["runner"] == "v1"
    assert len(engine.generate([ASK])["a"].token_ids) == 2
    assert events(engine) == []
    engine.close()


def test_on_v1_with_speculative_decoding_a_passed_one_is_refused(engines, installed, foresee) -> None:
    spec = "engine_probes:V1Probe"
    folder = installed("nothing")
    assert outcome(foresee(folder, "v1", drafts=True, passed=(spec,))) == (["blocks"], {"draft-refusal"})
    with pytest.raises(RemoteError, match="not supported when speculative decoding"):
        engines(EngineSettings("v1", extra={"speculative_config": DRAFTS}), [spec])


def test_with_speculative_decoding_a_plugin_that_does_not_import_fails_every_request(
    engines, installed, foresee
) -> None:
    folder = installed("broken", gone="no_such_module:P")
    verdicts, errors = outcome(foresee(folder, "v1", drafts=True))
    assert (verdicts, errors) == (["inactive"], {"inactive-with-drafts", "fails-requests"})
    engine = engines(EngineSettings("v1", extra={"speculative_config": DRAFTS}), sys_path=[folder])
    with pytest.raises(RemoteError, match="Failed to load LogitsProcessor plugin"):
        answer = engine.generate([ASK])["a"]
        assert answer.error is None, answer.error
    engine.close()


def test_a_class_behind_two_entry_points_runs_twice(engines, installed, foresee) -> None:
    folder = installed("doubled", one="engine_probes:Both", two="doubled_alias:Both")
    (folder / "doubled_alias.py").write_text("from engine_probes import Both\n", encoding="utf-8")
    assert outcome(foresee(folder, "v1")) == (["starts"] * 2, {"runs-twice"})
    engine = engines("v1", sys_path=[folder])
    assert [event[0] for event in events(engine)].count("init") == 2
    engine.close()


@pytest.mark.parametrize(("value", "message"), [("true", "invalid literal for int"), ("1", "requires Triton")])
def test_a_switch_that_cannot_be_obeyed_keeps_this_vllm_from_starting(
    installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    folder = installed("portable", both="engine_probes:Both")
    monkeypatch.setenv(SWITCH, value)
    report = examine(Settings(), [str(folder), str(PROBES), *sys.path], tmp_path)
    assert outcome(report) == (["blocks"], {"engine-refuses"})
    (tmp_path / "model").mkdir()
    model.write(tmp_path / "model", 128, 64)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), str(PROBES)]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    command = [sys.executable, "-c", PLAIN, str(tmp_path / "model")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert message in done.stderr + done.stdout


@pytest.mark.parametrize("passed", [False, True], ids=["installed", "passed"])
def test_with_asynchronous_scheduling_an_installed_reader_sees_placeholders(
    installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed: bool
) -> None:
    spec = "doctor_probes:Reader"
    folder = installed("reader", **({} if passed else {"reader": spec}))
    monkeypatch.setenv(SWITCH, "0")
    # As on a GPU, where asynchronous scheduling is the default.
    settings = Settings(release="0.32.0", passed=(spec,) if passed else ())
    report = examine(settings, [str(folder), str(PROBES), *sys.path], tmp_path)
    assert outcome(report) == (["starts"], set() if passed else {"placeholders"})
    extra = {"async_scheduling": True, "max_model_len": 128}
    engine = UnusualEngine(EngineSettings("v1", extra=extra), [spec] if passed else [], sys_path=[PROBES, folder])
    with engine:
        engine.generate([Ask("a", (1, 2, 3), {"max_tokens": 8, "temperature": 0.0})])
        seen = engine.inspect("doctor_probes:seen")
    assert seen
    assert any(seen) is not passed


def test_on_a_cpu_asynchronous_scheduling_is_off_even_if_asked_for(engines, installed, foresee) -> None:
    folder = installed("reader", reader="doctor_probes:Reader")
    assert outcome(foresee(folder, "v1")) == (["starts"], set())
    engine = engines(EngineSettings("v1", extra={"async_scheduling": True}), sys_path=[folder])
    assert not engine.inspect("plugin_probes:is_async")
    engine.close()
