"""The formats of a report: text, JSON, JUnit, GitHub, SARIF. They stay well formed with any message of a plugin."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from lpkit_conformance.processes.codec import decode
from lpkit_conformance.report import excerpt, formats
from lpkit_conformance.report.github import job_summary
from lpkit_conformance.report.markup import xml_text
from lpkit_conformance.report.terminal import one_line, show, table
from lpkit_conformance.report.text import source_lines
from lpkit_conformance.results import DOCUMENTATION, IN_PYTHON, CheckResult, Finding, Report, TargetResult, check_page

NASTY = "two\nlines, \x1b[31mred\x00 | <&> 100%"
HERE = Path.cwd() / "src" / "my plugin.py"

FINDING = Finding(
    NASTY,
    where={"request": "a", "row": "0"},
    expected="1",
    got=NASTY,
    operations=("a arrives with arguments 0", "step x2"),
    cause="a cause",
    fix="a fix",
    location=f"{HERE}:12",
)

CHECKS = (
    CheckResult("LP001", "is-a-processor", "", "passed", "implements v1"),
    CheckResult("LP004", "default-engine-starts", "", "advice", "advised", Finding("advised")),
    CheckResult("LP202", "replace-on-add", "v1", "failed", NASTY, FINDING, 0.25),
    CheckResult("LP203", "remove", "v1", "expected", "known: it fails", FINDING),
    CheckResult("LP204", "one-way-move", "v1", "unexpected_pass", "remove it"),
    CheckResult("LP205", "swap", "v1", "skipped", "never active: no"),
    CheckResult("LP206", "swap-chain", "v1", "blocked", "needs LP202"),
    CheckResult("LP207", "full", "v1", "blocked", "needs LP202"),
    CheckResult("LP208", "growth", "v1", "error", "lost"),
)

REPORT = Report(
    (
        TargetResult("mine", ("v1",), CHECKS, "v1", "the stand-in", notes=("a note",)),
        TargetResult("theirs", (), (), error=NASTY),
    )
)


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def written(name: str, report: Report = REPORT, verbose: bool = False) -> str:
    file = io.StringIO()
    formats.write(name, report, file, verbose)
    return file.getvalue()


def of(*checks: CheckResult, **target: Any) -> Report:
    return Report((TargetResult("x", (), checks, **target),))


def found_at(location: str) -> Report:
    return of(replace(CHECKS[2], finding=Finding("x", location=location)))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_format_names_every_target_and_ends_its_last_line(name: str) -> None:
    text = written(name)
    assert "mine" in text and "theirs" in text
    assert text.endswith("\n")


def test_the_package_names_the_documentation_that_reports_link_to() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'Documentation = "{DOCUMENTATION}"' in text


# -- text --------------------------------------------------------------------------------------------------------


def test_the_rich_format_is_the_plain_text_where_there_are_no_colours(monkeypatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert written("rich") == written("plain")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("FAIL LP202 x: y", "\x1b[1;31mFAIL\x1b[0m LP202 x: y"),
        ("FAILURES", "FAILURES"),
        ("    rule        text", "\x1b[2m    rule        \x1b[0mtext"),
        ("error  why", "\x1b[31merror\x1b[0m  why"),
        ("blocks", "\x1b[31mblocks\x1b[0m"),
        ("mine  V1  no", "mine  V1  \x1b[31mno\x1b[0m"),
        (("of its own [b]", "bold"), "\x1b[1mof its own [b]\x1b[0m"),
    ],
)
def test_a_terminal_shows_verdicts_in_colours_and_labels_dimmed(line: Any, shown: str, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show([line], terminal := Terminal())
    assert terminal.getvalue() == f"{shown}\n"


def test_a_pipe_gets_the_lines_as_they_are() -> None:
    show(["FAIL x", ("[bold]", "bold")], pipe := io.StringIO())
    assert pipe.getvalue() == "FAIL x\n[bold]\n"


def test_a_table_has_aligned_columns() -> None:
    assert table([("", "n"), ("first", "10"), ("x", "7")], right=[1]) == ["        n", "first  10", "x       7"]


def test_text_puts_failures_first_and_advice_last() -> None:
    heads = [line.split()[0] for line in written("plain").splitlines() if line[:1].strip() and " LP" in line]
    assert heads == ["FAIL", "UNEXPECTED", "ERROR", "expected", "advice"]


def test_text_gives_the_evidence_in_order() -> None:
    labels = re.findall(r"^    (\w+)  ", written("plain", of(CHECKS[2])), re.M)
    assert labels == ["rule", "where", "expected", "got", "operations", "cause", "fix", "line", "more"]


def test_text_names_one_finding_once_with_both_hosts() -> None:
    failed = [replace(CHECKS[2], host=host) for host in ("v1", "v2")]
    other = replace(CHECKS[2], host="v2", finding=replace(FINDING, location="elsewhere.py:3"))
    heads = re.findall(r"^FAIL (LP202.*?) replace", written("plain", of(*failed, other)), re.M)
    assert heads == ["LP202[v1, v2]", "LP202[v2]"]
    target = json.loads(written("json", of(*failed)))["targets"][0]
    assert [entry["checks"] for entry in target["findings"]] == [["LP202[v1]", "LP202[v2]"]]
    assert len(target["checks"]) == 2


def test_text_shows_the_source_and_the_arguments_of_the_requests() -> None:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "NASTY =" in text)
    arguments = {"a": "{'bias': 2}", "b": "", "c": "{'bias': 2}"}
    requests = [{"id": name, "plugin": bool(text), "arguments": text} for name, text in arguments.items()]
    finding = replace(FINDING, location=f"{__file__}:{line}", timeline={"requests": requests})
    shown = written("plain", of(replace(CHECKS[2], finding=finding)))
    assert "    arguments   a, c: {'bias': 2}\n" in shown
    assert f"> {line} | NASTY = " in shown


def test_text_begins_with_what_it_takes_to_get_it_again_and_counts_name_what_was_ignored() -> None:
    case, versions = {"extra_args": {"bias": 2}}, {"lpkit": "1.0", "torch": "2.9"}
    settings = {"seed": 7, "cases": [case], "select": [], "ignore": ["LP7"], "versions": versions}
    report = of(*CHECKS, settings=settings)
    lines = written("plain", report).splitlines()
    assert lines[1:4] == ["  seed 7; lpkit 1.0, torch 2.9", '  case {"extra_args": {"bias": 2}}', "  ignore LP7"]
    assert any(" checks ran" in line and line.endswith("; ignored: LP7") for line in lines)
    assert json.loads(written("json", report))["targets"][0]["settings"] == settings
    assert "seed 7; lpkit 1.0, torch 2.9" in written("html", report)


def test_text_keeps_a_message_on_its_line() -> None:
    text = written("plain", verbose=True)
    assert "\x1b" not in text and "\x00" not in text
    assert "FAIL LP202[v1] replace-on-add: two lines, ?[31mred? | <&> 100%" in text


def test_the_reason_why_a_step_is_not_recorded_is_a_note_once() -> None:
    reason = f"{IN_PYTHON}it calls `softmax` on a tensor"
    checks = [CheckResult("LP221", "other-engines", host, "passed", f"9 engines; {reason}") for host in ("v1", "v2")]
    assert [line for line in written("plain", of(*checks)).splitlines() if "softmax" in line] == [f"  note: {reason}"]
    assert "note" not in written("plain", of(replace(checks[0], message="9 engines")))


def test_an_announced_failure_is_one_line() -> None:
    lines = written("plain", of(CHECKS[3])).splitlines()
    assert lines[2:4] == ["expected LP203[v1] remove: known: it fails", ""]


def test_the_summary_counts_what_ran_and_says_why_the_rest_did_not() -> None:
    lines = written("plain").splitlines()
    start = next(number for number, line in enumerate(lines) if "checks ran" in line)
    assert lines[start : start + 5] == [
        "6 of 9 checks ran on V1: 1 passed, 1 failed, 1 passed unexpectedly, 1 failed as expected, 1 with advice, "
        "1 in error",
        "  skipped (never active: no): LP205[v1]",
        "  blocked (needs LP202): LP206[v1], LP207[v1]",
        "  note: a note",
        "FAIL  mine",
    ]
    assert lines[-2:] == [f"  could not judge: {one_line(NASTY)}", "ERROR  theirs"]


@pytest.mark.parametrize(("root", "runs"), [("LP202", True), ("LP101", False)])
def test_many_blocked_checks_name_the_option_that_runs_them(root: str, runs: bool) -> None:
    blocked = [CheckResult(f"LP2{n}", "some", "v1", "blocked", f"needs {root}") for n in range(10, 20)]
    assert (f", and 4 more (run them: --ignore {root})\n" in written("plain", of(*blocked))) is runs


def test_verbose_lists_every_check_and_the_time_of_each_family() -> None:
    text = written("plain", verbose=True)
    for check in CHECKS:
        assert re.search(rf"^  .*{re.escape(check.label)} +{check.name} +\d+\.\d\d s", text, re.M)
    assert "  seconds: LP0 0.00, LP2 0.25" in text


def test_a_line_that_cannot_be_parsed_has_a_caret(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text("import lpkit\n\nclass P:\n    def process(self, logits, rows)\n        pass\n")
    shown = list(source_lines(f"{tmp_path / 'plugin.py'}:4"))
    caret = shown[[line.startswith(">") for line in shown].index(True) + 1]
    assert (caret.strip(), shown[shown.index(caret) - 1][caret.index("^") - 1]) == ("^", ")")
    assert not any("^" in line for line in source_lines(f"{tmp_path / 'plugin.py'}:3"))


def test_a_file_is_parsed_once_for_all_its_findings_and_again_when_it_was_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(excerpt.ast, "parse", parsed.append)
    file = tmp_path / "plugin.py"
    for source in (b"once = 1\n", b"mended = 2\n"):
        file.write_bytes(source)
        for _ in range(2):
            assert not any(line.kind == "caret" for line in excerpt.excerpt(f"{file}:1"))
    assert parsed == [b"once = 1\n", b"mended = 2\n"]


# -- JSON and the page -------------------------------------------------------------------------------------------


def test_json_has_the_schema_of_lpkit_check_1() -> None:
    report = json.loads(written("json"))
    assert list(report) == ["schema", "verdict", "targets"]
    assert (report["schema"], report["verdict"]) == ("lpkit.check/1", "fail")
    for target in report["targets"]:
        assert {"target", "hosts", "checks"} <= set(target)
        for check in target["checks"]:
            assert {"code", "name", "host", "status", "message"} <= set(check)
    first = report["targets"][0]
    assert (first["target"], first["hosts"], first["checks"][2]["status"]) == ("mine", ["v1"], "failed")


def test_the_page_has_every_text_of_the_json() -> None:
    page = re.sub("<[^>]*>", "", unescape(written("html")))
    for target in json.loads(written("json"))["targets"]:
        texts = [target["target"], target["error"], *target["notes"]]
        for check in target["checks"]:
            texts += [check["code"], check["name"], check["message"]]
            for key in ("cause", "fix", "expected", "got", "where", "operations") if check["finding"] else ():
                value = check["finding"][key]
                texts += [value] if isinstance(value, str) else [*value, *getattr(value, "values", list)()]
        missing = [text for text in texts if re.sub("<[^>]*>", "", xml_text(text)) not in page]
        assert not missing


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
def test_a_result_comes_back_from_json_as_it_was(check: CheckResult) -> None:
    (target,) = of(check).to_json()["targets"]
    assert decode(CheckResult, json.loads(json.dumps(target["checks"][0]))) == check
    if check.finding:
        assert target["checks"][0]["finding"]["documentation"] == check_page(check.code)


# -- formats of services -----------------------------------------------------------------------------------------


def test_junit_parses_and_its_counts_are_those_of_its_cases() -> None:
    root = ET.fromstring(written("junit").encode("utf-8"))
    for suite in root:
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
        for kind, plural in {"failure": "failures", "error": "errors", "skipped": "skipped"}.items():
            assert int(suite.attrib[plural]) == len(suite.findall(f"testcase/{kind}")), kind
    failed = root.find("testsuite/testcase[@name='LP202[v1] replace-on-add']/failure")
    assert failed is not None and failed.attrib["message"].startswith("two")
    assert "a arrives with arguments 0" in (failed.text or "")


def test_github_annotates_the_line_at_fault() -> None:
    lines = [line for line in written("github").splitlines() if line.startswith("::")]
    assert lines[0] == f"::notice title=LP004 default-engine-starts::mine: advised%0A{check_page('LP004')}"
    assert lines[1].startswith("::error file=src/my plugin.py,line=12,title=LP202[v1] replace-on-add::mine: two%0A")
    assert lines[1].endswith(f"100%25%0Afix: a fix%0A{check_page('LP202')}")
    assert lines[-1].startswith("::error title=lpkit::theirs: two%0A")
    assert len(lines) == 5
    assert "file=/elsewhere/plugin.py,line=3," in written("github", found_at("/elsewhere/plugin.py:3"))


def test_the_job_summary_is_a_table_of_what_needs_attention() -> None:
    text = job_summary(REPORT)
    rows = [line for line in text.splitlines() if line.startswith("| [LP")]
    codes = {"LP004": "LP004", "LP202[v1]": "LP202", "LP204[v1]": "LP204", "LP208[v1]": "LP208"}
    assert [row.split(" | ")[0] for row in rows] == [f"| [{name}]({check_page(code)})" for name, code in codes.items()]
    assert all(row.count("|") == 4 for row in rows)
    assert "### mine: fail" in text and "### theirs: error" in text


def sarif(report: Report) -> dict[str, Any]:
    text = written("sarif", report)
    text.encode("utf-8")
    (run,) = json.loads(text)["runs"]
    return run


def test_sarif_has_a_result_with_its_level_and_its_rule_for_all_that_needs_attention() -> None:
    document = json.loads(written("sarif"))
    assert document["version"] == "2.1.0" and document["$schema"].endswith("sarif-schema-2.1.0.json")
    run = sarif(REPORT)
    levels = [(result["ruleId"], result["level"]) for result in run["results"]]
    errors = [(code, "error") for code in ("LP202", "LP203", "LP204", "LP208")]
    assert levels == [("LP004", "note"), *errors]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == [code for code, _ in levels]
    for rule in rules:
        assert rule["helpUri"] == check_page(rule["id"])
        assert rule["shortDescription"]["text"] and rule["help"]["text"]
    assert [result["ruleId"] for result in run["results"] if "suppressions" in result] == ["LP203"]


@pytest.mark.parametrize(
    ("location", "artifact", "line"),
    [
        (f"{HERE}:12", {"uri": "src/my%20plugin.py", "uriBaseId": "ROOT"}, 12),
        ("", {"uri": "pyproject.toml", "uriBaseId": "ROOT"}, 1),
        ("/elsewhere/plugin.py:3", {"uri": "file:///elsewhere/plugin.py"}, 3),
    ],
)
def test_sarif_points_at_the_line_of_a_file(location: str, artifact: dict[str, str], line: int) -> None:
    run = sarif(found_at(location))
    physical = run["results"][0]["locations"][0]["physicalLocation"]
    assert physical == {"artifactLocation": artifact, "region": {"startLine": line}}
    assert run["originalUriBaseIds"]["ROOT"]["uri"] == f"{Path.cwd().as_uri()}/"


def test_sarif_results_are_distinct_and_recognized_in_the_next_run() -> None:
    report = of(CHECKS[2], replace(CHECKS[2], host="v2"))
    prints = [result["partialFingerprints"]["lpkit/v1"] for result in sarif(report)["results"]]
    assert len(set(prints)) == 2
    assert prints == [result["partialFingerprints"]["lpkit/v1"] for result in sarif(report)["results"]]


def test_sarif_of_a_target_that_could_not_be_judged_is_no_success() -> None:
    (invocation,) = sarif(of(error="it is gone"))["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "it is gone" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    assert sarif(of(CHECKS[0]))["invocations"][0]["executionSuccessful"] is True
