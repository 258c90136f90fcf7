"""The formats of a report: text, JSON, JUnit, GitHub. They stay well formed with any message of a plugin."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from lpkit_conformance.documentation import DOCUMENTATION, check_page
from lpkit_conformance.report import excerpt, formats
from lpkit_conformance.report.github import job_summary
from lpkit_conformance.report.terminal import one_line, show, show_coloured
from lpkit_conformance.report.text import source_lines
from lpkit_conformance.results import CheckResult, Finding, Report, TargetResult

NASTY = "two\nlines, \x1b[31mred\x00 | <&> 100%"

FINDING = Finding(
    NASTY,
    where={"request": "a", "row": "0"},
    expected="1",
    got=NASTY,
    operations=("a arrives with arguments 0", "step x2"),
    cause="a cause",
    fix="a fix",
    location=str(Path.cwd() / "src" / "plugin.py") + ":12",
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_format_names_every_target_and_ends_its_last_line(name: str) -> None:
    found = written(name)
    assert "mine" in found and "theirs" in found
    assert found.endswith("\n")


def test_the_rich_format_is_the_plain_text_where_there_are_no_colours(monkeypatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert written("rich") == written("plain")


def test_a_terminal_shows_verdicts_in_colours_and_labels_dimmed(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show(["FAIL LP202 x: y", "FAILURES", "    rule        text", "error  why", "blocks"], terminal := Terminal())
    assert terminal.getvalue().splitlines() == [
        "\x1b[1;31mFAIL\x1b[0m LP202 x: y",
        "FAILURES",
        "\x1b[2m    rule        \x1b[0mtext",
        "\x1b[31merror\x1b[0m  why",
        "\x1b[31mblocks\x1b[0m",
    ]


def test_a_pipe_gets_the_lines_as_they_are() -> None:
    show(["FAIL x", "[bold]"], pipe := io.StringIO())
    show_coloured(["[bold]"], terminal := Terminal())
    assert (pipe.getvalue(), terminal.getvalue()) == ("FAIL x\n[bold]\n", "[bold]\n")


def test_text_puts_failures_first_and_advice_last() -> None:
    heads = [line.split()[0] for line in written("plain").splitlines() if line[:1].strip() and " LP" in line]
    assert heads == ["FAIL", "UNEXPECTED", "ERROR", "expected", "advice"]


def test_text_gives_the_evidence_in_order() -> None:
    labels = re.findall(r"^    (\w+)  ", written("plain", Report((TargetResult("x", (), CHECKS[2:3]),))), re.M)
    assert labels == ["rule", "where", "expected", "got", "operations", "cause", "fix", "line", "more"]


def test_text_names_one_finding_once_with_both_hosts() -> None:
    failed = [replace(CHECKS[2], host=host) for host in ("v1", "v2")]
    other = replace(CHECKS[2], host="v2", finding=replace(FINDING, location="elsewhere.py:3"))
    heads = [
        line
        for line in written("plain", Report((TargetResult("x", (), (*failed, other)),))).splitlines()
        if "FAIL LP" in line
    ]
    assert [head.split(" replace")[0] for head in heads] == ["FAIL LP202[v1, v2]", "FAIL LP202[v2]"]
    found = json.loads(written("json", Report((TargetResult("x", (), tuple(failed)),))))["targets"][0]
    assert [entry["checks"] for entry in found["findings"]] == [["LP202[v1]", "LP202[v2]"]]
    assert len(found["checks"]) == 2


def test_text_shows_the_source_and_the_arguments_of_the_requests() -> None:
    line = next(
        n for n, text in enumerate(Path(__file__).read_text(encoding="utf-8").splitlines(), 1) if "NASTY =" in text
    )
    requests = [
        {"id": "a", "plugin": True, "arguments": "{'bias': 2}"},
        {"id": "b", "plugin": False, "arguments": ""},
        {"id": "c", "plugin": True, "arguments": "{'bias': 2}"},
    ]
    finding = replace(FINDING, location=f"{__file__}:{line}", timeline={"requests": requests})
    check = replace(CHECKS[2], finding=finding)
    shown = written("plain", Report((TargetResult("x", (), (check,)),)))
    assert "    arguments   a, c: {'bias': 2}\n" in shown
    assert f"> {line} | NASTY = " in shown


def test_text_begins_with_what_it_takes_to_get_it_again_and_counts_name_what_was_ignored() -> None:
    settings = {
        "seed": 7,
        "cases": [{"extra_args": {"bias": 2}}],
        "select": [],
        "ignore": ["LP7"],
        "versions": {"lpkit": "1.0", "torch": "2.9"},
    }
    lines = written("plain", Report((replace(REPORT.targets[0], settings=settings),))).splitlines()
    assert lines[1:4] == ["  seed 7; lpkit 1.0, torch 2.9", '  case {"extra_args": {"bias": 2}}', "  ignore LP7"]
    assert any(" checks ran" in line and line.endswith("; ignored: LP7") for line in lines)
    report = Report((replace(REPORT.targets[0], settings=settings),))
    assert json.loads(written("json", report))["targets"][0]["settings"] == settings


def test_text_keeps_a_message_on_its_line() -> None:
    text = written("plain", verbose=True)
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "FAIL LP202[v1] replace-on-add: two lines, ?[31mred? | <&> 100%" in text


def test_an_announced_failure_is_one_line() -> None:
    lines = written("plain", Report((TargetResult("x", (), CHECKS[3:4]),))).splitlines()
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


def test_verbose_lists_every_check_and_the_time_of_each_family() -> None:
    text = written("plain", verbose=True)
    for check in CHECKS:
        assert re.search(rf"^  .*{re.escape(check.label)} +{check.name} +\d+\.\d\d s", text, re.M)
    assert "  seconds: LP0 0.00, LP2 0.25" in text


def test_json_has_the_schema_of_lpkit_check_1() -> None:
    found = json.loads(written("json"))
    assert (found["schema"], found["verdict"]) == ("lpkit.check/1", "fail")
    assert list(found) == ["schema", "verdict", "targets"]
    for target in found["targets"]:
        assert {"target", "hosts", "checks"} <= set(target)
        for check in target["checks"]:
            assert {"code", "name", "host", "status", "message"} <= set(check)
    first = found["targets"][0]
    assert (first["target"], first["hosts"], first["checks"][2]["status"]) == ("mine", ["v1"], "failed")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
def test_a_result_comes_back_from_json_as_it_was(check: CheckResult) -> None:
    (target,) = Report((TargetResult("x", (), (check,)),)).to_json()["targets"]
    assert CheckResult.from_json(json.loads(json.dumps(target["checks"][0]))) == check


@pytest.mark.parametrize(("status", "verdict"), [("pass", "passed"), ("fail", "failed"), ("error", "skipped")])
def test_the_verdict_is_one_of_three(status: str, verdict: str) -> None:
    report = Report((TargetResult("x", (), (CheckResult("LP001", "x", "", verdict),)),))
    assert report.to_json()["verdict"] == status


def test_junit_parses_and_its_counts_are_those_of_its_cases() -> None:
    root = ET.fromstring(written("junit").encode("utf-8"))
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        for kind in ("failure", "error", "skipped"):
            plural = {"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]
            assert int(suite.attrib[plural]) == sum(case.find(kind) is not None for case in cases), kind
    failed = root.find("testsuite/testcase[@name='LP202[v1] replace-on-add']/failure")
    assert failed is not None
    assert failed.attrib["message"].startswith("two")
    assert "a arrives with arguments 0" in (failed.text or "")


def test_github_annotates_the_line_at_fault() -> None:
    lines = [line for line in written("github").splitlines() if line.startswith("::")]
    link = check_page("LP004")
    assert lines[0] == f"::notice title=LP004 default-engine-starts::mine: advised%0A{link}"
    assert lines[1].startswith("::error file=src/plugin.py,line=12,title=LP202[v1] replace-on-add::mine: two%0Alines")
    assert lines[1].endswith(f"100%25%0Afix: a fix%0A{check_page('LP202')}")
    assert lines[-1].startswith("::error title=lpkit::theirs: two%0A")
    assert len(lines) == 5


def test_github_annotations_name_files_outside_the_folder_in_full(tmp_path) -> None:
    finding = Finding("x", location=f"{tmp_path / 'plugin.py'}:3")
    report = Report((TargetResult("x", (), (CheckResult("LP202", "y", "v1", "failed", "x", finding),)),))
    assert f"file={(tmp_path / 'plugin.py').as_posix()},line=3," in written("github", report)


def test_the_job_summary_is_a_table_of_what_needs_attention() -> None:
    text = job_summary(REPORT)
    rows = [line for line in text.splitlines() if line.startswith("| [LP")]
    labels = [row.removeprefix("| [").partition("](")[0] for row in rows]
    assert labels == ["LP004", "LP202[v1]", "LP204[v1]", "LP208[v1]"]
    assert all(row.count("|") == 4 for row in rows)
    assert "### mine: fail" in text
    assert "### theirs: error" in text


def test_every_finding_links_to_the_documentation_of_its_check() -> None:
    (failed,) = (check for check in json.loads(written("json"))["targets"][0]["checks"] if check["code"] == "LP202")
    assert failed["finding"]["documentation"] == check_page("LP202")
    assert CheckResult.from_json(failed).finding == FINDING
    assert f"%0A{check_page('LP202')}" in written("github")
    assert f"[LP202[v1]]({check_page('LP202')})" in job_summary(REPORT)


def test_the_package_names_the_same_documentation() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'Documentation = "{DOCUMENTATION}"' in text


def test_what_cannot_be_parsed_is_shown_with_its_line_and_a_caret(tmp_path: Path) -> None:
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
        for line in (1, 1):
            assert not any(item.kind == "caret" for item in excerpt.excerpt(f"{file}:{line}"))
    assert parsed == [b"once = 1\n", b"mended = 2\n"]
