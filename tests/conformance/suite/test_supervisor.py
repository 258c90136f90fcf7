"""The run continues and reports the cause, even if a plugin breaks its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from lpkit_conformance.instruments.author_lines import is_authors, location_in
from lpkit_conformance.processes import supervise
from lpkit_conformance.results import CheckResult, TargetResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite import supervisor
from lpkit_conformance.suite.supervisor import Progress, check_target
from lpkit_conformance.testing import compute_check
from pids import ends

SUSPECTS = Path(__file__).parents[1] / "suspects"
HOSTILE = SUSPECTS / "hostile.py"
PLAN = Plan(cases=(Case.parse({"extra_args": {"bias": 2.5}}),), select=("LP301",))
LIMIT = 1.5


@dataclass(frozen=True)
class Suspect:
    """A plugin that breaks its process: the check that fails, its message, and text in the line at fault."""

    name: str
    label: str
    message: str
    line: str = ""
    select: tuple[str, ...] = ("LP301",)

    @property
    def target(self) -> str:
        return f"{SUSPECTS / self.name}.py:Anything" if "import" in self.name else f"{HOSTILE}:{self.name}"

    @property
    def location(self) -> str:
        """``file:line`` of the line, behind the head of the class; the file, if no text is given."""
        path = Path(self.target.rpartition(":")[0])
        if not self.line:
            return str(path) if "import" in self.name else ""
        lines = path.read_text(encoding="utf-8").splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith(f"class {self.name}("))
        return f"{path}:{next(n for n, line in enumerate(lines[start:], start + 1) if self.line in line)}"


HUNG = f"did not return within {LIMIT:g} s, "
ENDED = "the process ended with exit code"
SUSPECTED = (
    Suspect("HangsInUpdates", "LP109[v1]", f"update_state {HUNG}during the check", "# here", ("LP301", "LP606")),
    Suspect("ExitsWhenCollected", "", f"{ENDED} 7, during the check"),
    Suspect("Exits", "LP109[v1]", f"{ENDED} 0, during the check", "os._exit", ("LP104", "LP105", "LP402", "LP102")),
    Suspect("PrintsMegabytes", "", "the plugin printed more than 8 MiB, during the check"),
    Suspect("LeavesAProcess", "LP606", "1 process left running", "", ("LP606",)),
    Suspect("hangs_at_import", "LP001", f"the plugin {HUNG}while the plugin was loaded"),
)

FEW = ("HangsInUpdates", "Exits", "LeavesAProcess")


@pytest.fixture(scope="module")
def note(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("note") / "pid"


@pytest.fixture(scope="module")
def judged(note: Path) -> Callable[[str], TargetResult]:
    """``judged(name)``: the result of a suspect, which is checked once.

    Other kinds of loss are in ``processes/test_supervise.py``, and an end of the process at import in
    ``tests/contracts/test_check.py``.
    """

    @cache
    def result(name: str) -> TargetResult:
        suspect = next(suspect for suspect in SUSPECTED if suspect.name == name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LPKIT_TEST_NOTE", str(note))
            return check_target(suspect.target, replace(PLAN, select=suspect.select), [], limit=LIMIT)

    return result


def failure(result: TargetResult) -> CheckResult:
    """The one check that failed."""
    (found,) = [check for check in result.checks if check.status == "failed"]
    assert found.finding is not None
    return found


@pytest.mark.parametrize(
    "suspect",
    [
        pytest.param(suspect, id=suspect.name, marks=() if suspect.name in FEW else pytest.mark.broad)
        for suspect in SUSPECTED
    ],
)
def test_one_root_cause_is_one_failure_with_its_line(judged, suspect: Suspect) -> None:
    if suspect.name == "LeavesAProcess" and not Path("/proc/self").exists():
        pytest.skip("this system does not tell")
    found = failure(judged(suspect.name))
    assert suspect.label in found.label
    assert suspect.message in found.message
    assert found.finding.location.startswith(suspect.location)
    assert judged(suspect.name).error == ""  # also if it was the last check


def test_what_hung_is_not_called_again_and_the_rest_goes_on(judged) -> None:
    result = judged("HangsInUpdates")
    assert failure(result).finding.location.rpartition(":")[0] == str(HOSTILE)
    statuses = {check.label: (check.status, check.message) for check in result.checks}
    assert statuses["LP606"] == ("blocked", "needs LP109[v1]")  # it requires LP001 only
    assert statuses["LP101[v1]"] == ("passed", "")
    assert result.verdict == "fail"


@pytest.mark.broad
def test_a_check_that_breaks_the_gpu_fails_and_the_others_get_a_process_with_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LPKIT_TEST_NOTE", str(tmp_path / "note"))
    result = check_target(f"{HOSTILE}:BreaksTheGpu", replace(PLAN, select=("LP1", "LP2")), [], limit=LIMIT)
    assert "broke the GPU: CUDA error: device-side assert triggered" in failure(result).message
    assert "--device cuda" in failure(result).finding.fix
    assert {check.label: check.status for check in result.checks}["LP106"] == "passed"
    assert {check.status for check in result.checks} == {"passed", "failed", "blocked"}
    assert result.error == ""


@pytest.mark.parametrize(
    ("name", "label", "status"),
    [("WaitsAsLongAsAsked", "LP114[v1]", "advice"), ("AcceptsLongWaits", "LP104[v1]", "failed")],
)
def test_a_value_that_keeps_a_call_busy_is_named_and_blocks_no_other_calls(name, label, status) -> None:
    result = check_target(f"{HOSTILE}:{name}", replace(PLAN, select=(label[:5], "LP108")), [], limit=LIMIT)
    found = {check.label: check for check in result.checks}
    assert (found[label].status, found[label].message) == (
        status,
        f"update_state with bias=1e+30 {HUNG}during the check",
    )
    finding = found[label].finding
    assert finding.where["argument"] == "bias=1e+30" and "it is this value" in finding.cause
    assert finding.location.rpartition(":")[0] == str(HOSTILE)
    assert found["LP108[v1]"].status == "passed"


def test_a_run_ends_at_the_second_hang() -> None:
    result = check_target(f"{HOSTILE}:HangsOnBoth", replace(PLAN, select=("LP1",)), [], limit=LIMIT)
    assert {check.message for check in result.checks if check.status == "failed"} == {
        f"update_state {HUNG}during the check",
        f"add_request {HUNG}during the check",
    }
    assert result.error == "gave up after the plugin ended or blocked the process 2 times"


def test_a_slow_plugin_does_not_hang() -> None:
    result = check_target(f"{HOSTILE}:Slow", replace(PLAN, select=("LP109",)), [], limit=1.0)
    slow = next(check for check in result.checks if check.label == "LP109[v1]")
    assert (slow.status, slow.message) == ("passed", "")
    assert slow.seconds > 1.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ExitsPolitely", "apply raised SystemExit: enough"),
        ("Recurses", "apply raised RecursionError: maximum recursion depth exceeded"),
        ("RaisesItsOwn", "apply raised Enough:"),
    ],
)
def test_whatever_a_method_raises_is_a_finding(name: str, message: str) -> None:
    found = compute_check("LP109", f"{HOSTILE}:{name}", case=PLAN.cases[0])
    assert found.status == "failed"
    assert found.message.startswith(message)
    assert found.finding.location.startswith(str(HOSTILE))


def test_sys_exit_in_validation_refuses_the_request_and_nothing_else() -> None:
    target = f"{HOSTILE}:ExitsInValidation"
    assert compute_check("LP102", target, case=PLAN.cases[0]).status == "failed"
    assert compute_check("LP301", target, case=PLAN.cases[0]).status == "passed"


@pytest.mark.broad
def test_megabytes_of_output_have_their_own_advice(judged) -> None:
    finding = failure(judged("PrintsMegabytes")).finding
    assert finding.fix.startswith("print nothing in methods that run for each step")
    assert "debugger" not in finding.fix and "exits" not in finding.expected


@pytest.mark.broad
def test_only_what_the_plugin_has_lost_is_counted(tmp_path, monkeypatch) -> None:
    """A vLLM that ends the process is another's fault."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("import os\nos._exit(11)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    plan = Plan(cases=PLAN.cases, hosts=("v1",))
    result = check_target(f"{HOSTILE}:ExitsInMoreThanOneWay", plan, [], limit=LIMIT)
    assert result.error == "gave up after the plugin ended or blocked the process 3 times"
    statuses = {check.label: check.status for check in result.checks}
    assert [statuses[label] for label in ("LP101[v1]", "LP102", "LP103")] == ["failed", "failed", "blocked"]
    assert next(check for check in result.checks if check.label == "LP103").message == "needs LP102"
    assert result.judged_with.endswith("importing it, the process ended with exit code 11)")


def test_a_process_left_running_is_named_and_ended(judged, note) -> None:
    finding = failure(judged("LeavesAProcess")).finding
    pid = note.read_text(encoding="ascii")
    if Path("/proc/self").exists():
        assert f"(process {pid})" in finding.got
    if os.name != "nt":
        assert ends(int(pid))


def test_the_same_line_twice_is_one_failure_and_the_run_is_given_up(judged) -> None:
    result = judged("Exits")
    first = failure(result)
    blocked = [check for check in result.checks if check.status == "blocked"]
    assert blocked
    assert all(first.code in check.message or check.message == "the run was abandoned" for check in blocked)
    assert len(result.checks) == len({check.label for check in result.checks})


@pytest.mark.broad
def test_an_exception_that_was_reported_before_the_process_was_lost_is_not_reported_again() -> None:
    order = ("LP306", "LP309", "LP307")
    plan = replace(PLAN, select=order, first=order)
    found = check_target(f"{HOSTILE}:ExitsInBetween", plan, [], limit=LIMIT)
    said = {result.code: (result.status, result.message) for result in found.checks}
    assert said["LP306"][0] == said["LP309"][0] == "failed"
    assert said["LP307"] == ("blocked", "needs LP306")


def test_the_process_that_only_watches_loads_no_torch(tmp_path) -> None:
    program = (
        "import sys\n"
        "from lpkit_conformance import run\n"
        "from lpkit_conformance.run import failures\n"
        "from lpkit_conformance.suite import supervisor\n"
        f"plan = run.plan_for(run.Options(cases=({PLAN.cases[0].text!r},), select=('LP202',)))\n"
        f"result = supervisor.check_target({str(SUSPECTS / 'bias.py')!r} + ':Good', plan, [])\n"
        "print(result.verdict, {'torch', 'numpy', 'vllm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "pass set()\n"


def test_a_case_that_only_vllm_can_judge_is_judged_in_the_child() -> None:
    plan = Plan(cases=(Case.parse({"extra_arg": {}}, complete=False),), select=("LP001",))
    result = check_target(f"{SUSPECTS / 'bias.py'}:Good", plan, [])
    assert result.verdict == "error"
    assert "did you mean 'extra_args'?" in result.error


def test_progress_sees_every_check_and_modules_of_the_current_folder_do_not_replace_the_librarys(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(supervise, "subprocess", subprocess)  # not forked: the start is tested, too
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')\n", encoding="utf-8")
    (tmp_path / "torch.py").write_text("raise SystemExit('nor this one')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    started, finished = [], []
    progress = Progress(lambda label, done, total: started.append((label, done, total)), finished.append)
    result = check_target(f"{SUSPECTS / 'bias.py'}:Good", PLAN, [str(tmp_path)], progress)
    assert result.verdict == "pass"
    assert [label for label, _, _ in started] == [check.label for check in result.checks]
    assert [check.label for check in finished] == [check.label for check in result.checks]
    assert {total for _, _, total in started} == {len(result.checks)}


DUMP = """\
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f02 (most recent call first):
  File "{torch}", line 7 in mm
  File "/home/me/plugin.py", line 12 in apply
  File "/home/me/helper.py", line 3 in call
  File "{own}", line 20 in run
"""


def test_the_innermost_frame_of_the_authors_is_named() -> None:
    dump = DUMP.format(torch="/venv/lib/python3.11/site-packages/torch/functional.py", own=supervisor.__file__)
    assert location_in(dump) == "/home/me/plugin.py:12"
    assert location_in(dump.replace(supervisor.__file__, "/elsewhere.py")) == ""


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/me/torch/plugin.py", True),
        ("/venv/lib/python3.11/site-packages/my_plugin/core.py", True),
        ("/venv/lib/python3.11/site-packages/torch/nn/modules.py", False),
        (json.__file__, False),
        (supervisor.__file__, False),
        ("<string>", False),
    ],
)
def test_files_of_plugins_are_distinguished_from_libraries(file: str, expected: bool) -> None:
    assert is_authors(file) is expected
