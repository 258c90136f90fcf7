"""The pytest front end gives the command's verdicts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from lpkit_conformance import run
from lpkit_conformance.checks.catalogue import by_code, chosen, requirements_first
from lpkit_conformance.checks.lp2_bookkeeping import LP201
from lpkit_conformance.errors import UsageError, UserError
from lpkit_conformance.results import Failed
from lpkit_conformance.run import Options
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.testing import ConformanceError, check, checks, compute_check, show
from zoo.correct.portable import PortableTokenBias
from zoo.correct.v1 import Bias
from zoo.lp202 import StaleOnDecline

ROOT = Path(__file__).resolve().parents[2]
SUSPECTS = Path(__file__).parent / "suspects"
needs_absence = pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="needs vLLM to be absent")
SELECT = ("LP0", "LP101", "LP104", "LP108", "LP201", "LP202")
CASE = "{extra_args = {bias = 2.5}}"

TARGETS = {
    "good": "bias:Good",
    "forgets": "bias:ForgetsToReplace",
    "trusts": "bias:TrustsItsArguments",
    "absent": "bias:Missing",
    "broken": "raises_at_import:Anything",
    "imports_vllm": "through_vllm:RawV1",
}

TEST_FILE = (
    f"""
from lpkit_conformance.testing import parametrize_with_checks

SELECT = {SELECT!r}
"""
    + "".join(
        f"""
@parametrize_with_checks({target!r}, select=SELECT)
def test_{name}(check):
    check.run()
"""
        for name, target in TARGETS.items()
    )
    + """
@parametrize_with_checks("bias:Good", cases=[{"extra_args": {"bais": 1}}], select=SELECT)
def test_inactive(check):
    check.run()

@parametrize_with_checks("bias:Good", select="LP203", ignore="LP1", hosts="v1")
def test_one_code(check):
    check.run()
"""
)

# Collected after the other file, and run before and after its tests.
NEIGHBOUR = """
import importlib.util
import pytest

AT_COLLECTION = importlib.util.find_spec("vllm")

def test_neighbour():
    assert (AT_COLLECTION, importlib.util.find_spec("vllm")) == (None, None)
    pytest.importorskip("vllm")
"""


def project(folder: Path) -> Path:
    """A project whose own modules are the suspects, with announced failures."""
    entry_points = "\n".join(f'{name} = "{target}"' for name, target in TARGETS.items())
    (folder / "pyproject.toml").write_text(
        f'[project.entry-points."vllm.logits_processors"]\n{entry_points}\n'
        f"[tool.lpkit]\ncases = [{CASE}]\n"
        "[tool.lpkit.expected_failures]\n"
        'LP202 = "the forgetful one is here on purpose"\n'
        'LP104 = {reason = "long ago", until = 2020-01-01}\n',
        encoding="utf-8",
    )
    for file in SUSPECTS.glob("*.py"):
        (folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "test_them.py").write_text(TEST_FILE, encoding="utf-8")
    for name in ("test_a.py", "test_z.py"):
        (folder / name).write_text(NEIGHBOUR, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Outcome of each check, by test function, as pytest reports it."""
    folder = project(tmp_path_factory.mktemp("project"))
    sources = [str(ROOT / name) for name in ("sdk", "conformance")]
    options = ["-q", "-p", "no:cacheprovider", "-o", "xfail_strict=true", "--junit-xml=x.xml"]
    path = os.pathsep.join([*sources, str(folder)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, dict[str, str]] = {}
    for case in ET.parse(folder / "x.xml").iter("testcase"):
        function, _, name = case.attrib["name"].partition("[")
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = kinds[0] if kinds else "passed"
        if outcome == "skipped" and case[0].attrib.get("type") == "pytest.xfail":
            outcome = "xfail"
        label = name.rstrip("]").partition("-")[0]
        found.setdefault(f"{case.attrib['classname'].rpartition('.')[2]}.{function}", {})[label] = outcome
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, judging_here: Any) -> run.Report:
    """The command's, for the same targets."""
    folder = project(tmp_path_factory.mktemp("again"))
    with judging_here():
        return run.run([], Options(select=SELECT), folder)


MEANS = {
    "passed": "passed",
    "advice": "passed",
    "failed": "failure",
    "unexpected_pass": "failure",
    "error": "failure",
    "expected": "xfail",
    "skipped": "skipped",
    "blocked": "skipped",
}


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "absent"])
def test_pytest_and_the_command_agree_on_every_check(outcomes, report, name: str) -> None:
    (target,) = [target for target in report.targets if target.target == name]
    labels = {check.label: MEANS[check.status] for check in target.checks}
    assert outcomes[f"test_them.test_{name}"] == labels


def test_the_suspects_show_every_kind_of_outcome(report) -> None:
    statuses = {check.status for target in report.targets for check in target.checks}
    assert {"passed", "failed", "expected", "unexpected_pass", "advice"} <= statuses


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("test_them.test_forgets", {"LP202[v1]": "xfail"}),
        ("test_them.test_good", {"LP001": "passed", "LP202[v1]": "failure"}),  # an announced failure that does not come
        pytest.param("test_a.test_neighbour", {"": "skipped"}, marks=needs_absence),  # it sees no stand-in for vLLM
        pytest.param("test_z.test_neighbour", {"": "skipped"}, marks=needs_absence),
    ],
)
def test_each_kind_of_outcome_is_the_one_of_its_test(outcomes, test: str, expected: dict[str, str]) -> None:
    assert expected.items() <= outcomes[test].items()


def test_a_plugin_that_never_acts_is_one_failing_test(outcomes) -> None:
    found = outcomes["test_them.test_inactive"]
    assert found["LP104[v1]"] == "failure", "the project announces that it fails"
    assert [label for label, kind in found.items() if kind == "failure" and label != "LP104[v1]"] == ["LP108[v1]"]
    assert found["LP201[v1]"] == "skipped"


def test_a_target_that_cannot_be_loaded_is_one_failing_test(outcomes, report) -> None:
    assert outcomes["test_them.test_absent"] == {"LP001": "failure"}
    (target,) = [target for target in report.targets if target.target == "absent"]
    assert target.verdict != "pass"


def test_one_code_may_be_given_as_a_string(outcomes) -> None:
    assert set(outcomes["test_them.test_one_code"]) == {
        f"{item.code}[v1]" for item in chosen(Plan(select=("LP203",), ignore=("LP1",)))
    }


def test_the_results_of_a_plugin_are_data_without_pytest() -> None:
    settings: dict[str, Any] = {"cases": [{"extra_args": {"bias": 2.5}}], "select": "LP202"}
    found = check(f"{SUSPECTS / 'bias.py'}:ForgetsToReplace", **settings)
    assert (found.verdict, found.hosts, found.interface) == ("fail", ("v1",), "v1")
    assert [entry.label for entry in found.together("failed")] == ["LP202[v1]"]
    assert check(f"{SUSPECTS / 'bias.py'}:Good", **settings).verdict == "pass"
    unloadable = check(f"{SUSPECTS / 'bias.py'}:Missing")
    assert (unloadable.verdict, [result.label for result in unloadable.checks]) == ("fail", ["LP001"])


@pytest.mark.parametrize("same", [True, False])
def test_equal_findings_on_both_hosts_are_one_failure_and_either_test_alone_fails(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: LP201, subject: Subject) -> None:
        raise Failed("broken", location=f"plugin.py:{7 if same else subject.setup.host}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LP201, "run", fail)
    found = checks("zoo.lp201.portable:LastAdmitted", cases=[{"extra_args": {"dense_amount": 1.5}}], select="LP201")
    one, other = (item for item in found if item.code == "LP201")
    with pytest.raises(ConformanceError):
        other.run()
    with pytest.raises(pytest.skip.Exception if same else ConformanceError) as caught:
        one.run()
    assert ("the same finding as that of LP201[v2]" in str(caught.value)) == same
    with pytest.raises(ConformanceError):
        other.run()


@pytest.mark.parametrize("code", ["LP001", "LP102", "LP211"])
def test_a_check_that_is_run_alone_computes_nothing_but_what_it_requires(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    computed: list[str] = []
    compute = Session.compute

    def counted(self: Session, check: Any, host: str) -> Any:
        computed.append(check.code)
        return compute(self, check, host)

    monkeypatch.setattr(Session, "compute", counted)
    bound = checks(f"{SUSPECTS / 'bias.py'}:Good", cases=[{"extra_args": {"bias": 2.5}}])
    next(item for item in bound if item.code == code).run()
    assert set(computed) == set(requirements_first([code], lambda each: by_code()[each].requires))
    assert len(computed) == len(set(computed))


def test_a_failed_test_saves_its_failure_for_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = f"{SUSPECTS / 'bias.py'}:ForgetsToReplace"
    bound = checks(target, cases=[{"extra_args": {"bias": 2.5}}], select="LP202")
    with pytest.raises(ConformanceError) as caught:
        next(item for item in bound if item.code == "LP202").run()
    (file,) = (tmp_path / ".lpkit" / "failures").glob("*.json")
    assert f"lpkit replay .lpkit/failures/{file.name}" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 40


def test_one_check_is_computed_in_one_line() -> None:
    assert compute_check("LP203", Bias, case=Bias.CASE).label == "LP203[v1]"
    assert compute_check("LP201", f"{SUSPECTS / 'bias.py'}:Good", case={"extra_args": {"bias": 2.5}}).status == "passed"
    failed = compute_check("LP202", StaleOnDecline, case=Bias.CASE, seed=3, max_num_seqs=4)
    assert failed.status == "failed"
    assert failed.finding is not None and failed.finding.scenario is not None
    assert (failed.finding.scenario["seed"], failed.finding.scenario["max_num_seqs"]) == (3, 4)


def test_a_check_is_computed_on_the_host_asked_for_and_without_one_on_the_first() -> None:
    case = PortableTokenBias.CASE
    assert [compute_check("LP201", PortableTokenBias, host=host, case=case).host for host in ("v2", "v1", "")] == [
        "v2",
        "v1",
        "v1",
    ]
    assert compute_check("LP801", PortableTokenBias, case=case).host == "v2"
    assert compute_check("LP001", PortableTokenBias).host == ""


@pytest.mark.parametrize(
    ("code", "host", "message"),
    [
        ("LP2o1", "", "there is no check LP2o1; did you mean"),
        ("LP901", "", "does not run with --engine reference"),
        ("LP801", "", "LP801 does not run on Bias"),
        ("LP201", "v3", "LP201 does not run on Bias on v3"),
    ],
)
def test_a_check_that_cannot_be_computed_is_refused(code: str, host: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compute_check(code, Bias, host=host, case=Bias.CASE)


def test_importing_the_package_or_the_front_end_brings_nothing_into_pytest() -> None:
    program = (
        "import sys, lpkit, lpkit_conformance.testing\n"
        "print(sorted({'pytest', '_pytest', 'torch', 'vllm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert "pytest11" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_show_runs_a_class_in_this_process_and_a_notebook_displays_the_page() -> None:
    shown = show(PortableTokenBias, case={"extra_args": {"pb_bias": 50.0, "pb_token": 4}}, steps=4)
    assert shown.receipts[0].acted == 4 and shown.parted and shown.names == ("PortableTokenBias",)
    page = shown._repr_html_()
    assert page.startswith("<iframe srcdoc=") and "&lt;title&gt;PortableTokenBias" in page and page.count("<") == 2


@pytest.mark.parametrize("options", [{"steps": 0}, {"case": {"extra_args": {"pb_bias": 500.0, "pb_token": 4}}}])
def test_show_refuses_what_it_cannot_show(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        show(PortableTokenBias, **options)
