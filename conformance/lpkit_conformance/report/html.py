"""One self-contained page for a browser: works without a network, prints, in light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from math import isfinite
from typing import IO, Any
from xml.etree.ElementTree import Element

from lpkit_conformance.catalogue import FAMILIES
from lpkit_conformance.documentation import check_page
from lpkit_conformance.report import drawing, text
from lpkit_conformance.report.excerpt import excerpt, shown, split, unparsable
from lpkit_conformance.report.markup import Child, element, extend, page
from lpkit_conformance.results import CheckResult, Entry, Finding, Report, Status, TargetResult, label_of

WORDS: dict[Status, str] = {
    "failed": "failed",
    "unexpected_pass": "passed unexpectedly",
    "error": "in error",
    "expected": "failed as expected",
    "advice": "advice",
    "passed": "passed",
    "skipped": "skipped",
    "blocked": "blocked",
}
"""What a status is called, in the order of the counts."""

VERDICTS = {"pass": "PASS", "fail": "FAIL", "error": "ERROR"}

SCALE = 150.0
"""Width of the drawing of a token's logits."""


def write(report: Report, file: IO[str], verbose: bool = False) -> None:
    """The whole page, whatever ``verbose`` says."""
    sheet = element("style")
    sheet.text = (files(__package__) / "html.css").read_text(encoding="utf-8") + drawing.style()
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{VERDICTS[report.verdict]} · lpkit check"),
        sheet,
    ]
    several = len(report.targets) > 1
    body = [
        element("header", element("h1", "lpkit check"), _verdict(report.verdict), *_navigation(report), class_="top"),
        element("main", *(_target(target, f"t{n}-" if several else "") for n, target in enumerate(report.targets))),
    ]
    file.write(page(head, body))


def _verdict(verdict: str) -> Element:
    return element("span", VERDICTS[verdict], class_=f"verdict {verdict}")


def _navigation(report: Report) -> Iterator[Element]:
    if len(report.targets) > 1:
        links = (
            element("li", element("a", target.target, href=f"#t{n}-top"), " ", _verdict(target.verdict))
            for n, target in enumerate(report.targets)
        )
        yield element("nav", element("ul", *links), aria_label="Targets")


def _target(target: TargetResult, prefix: str) -> Element:
    entries = [entry for status in text.SHOWN for entry in target.together(status)]
    anchors = {
        label_of(entry.check.code, host): f"{prefix}{_anchor(entry.check)}"
        for entry in entries
        for host in entry.hosts or ("",)
    }
    facts = [target.interface.replace("v", "V") + " interface" if target.interface else "", target.judged_with]
    facts += [line.strip() for line in text.settings_lines(target)]
    section = element(
        "section",
        element("h2", element("code", target.target), " ", _verdict(target.verdict)),
        element("p", " · ".join(filter(None, facts)), class_="facts") if any(facts) else None,
        element("p", f"Could not judge: {target.error}", class_="problem") if target.error else None,
        *(element("p", note, class_="note") for note in target.notes),
        _counts(target),
        _overview(target, anchors),
        id=f"{prefix}top",
        class_="target",
    )
    return extend(
        section,
        *(_finding(entry, anchors[entry.check.label]) for entry in entries),
        _all_checks(target) if target.checks else None,
    )


def _counts(target: TargetResult) -> Element:
    items = (
        element("li", element("b", str(target.count(status))), f" {word}", class_=f"count {status}")
        for status, word in WORDS.items()
        if target.count(status)
    )
    return element("ul", *items, class_="counts")


def _overview(target: TargetResult, anchors: Mapping[str, str]) -> Element:
    """A square per check, a line per family."""
    rows = []
    for family, title in FAMILIES.items():
        checks = [check for check in target.checks if check.code.startswith(family)]
        if checks:
            squares = element("span", *(_square(check, anchors.get(check.label)) for check in checks))
            rows.append(element("li", element("span", title, class_="family"), squares))
    return element("ul", *rows, class_="overview", aria_label="All checks by family")


def _square(check: CheckResult, anchor: str | None) -> Element:
    said = f"{check.label} {check.name}: {WORDS[check.status]}"
    kind = f"square {check.status}"
    if anchor is None:
        return element("span", class_=kind, title=said)
    return element("a", class_=kind, href=f"#{anchor}", title=said, aria_label=said)


def _anchor(check: CheckResult) -> str:
    return f"{check.code}-{check.host}".strip("-")


# -- one finding -------------------------------------------------------------------------------------------------


def _finding(entry: Entry, anchor: str) -> Element:
    check = entry.check
    article = element(
        "article",
        element(
            "header",
            element("span", WORDS[check.status], class_=f"status {check.status}"),
            element("a", check.code, href=check_page(check.code), title="documentation of this check"),
            element("span", check.name),
            *(element("span", host.upper(), class_="host") for host in entry.hosts),
        ),
        element("h3", *_prose(check.message)),
        element("p", element("b", "Rule "), *_prose(text.rule_of(check.code)), class_="rule"),
        id=anchor,
        class_=f"finding {check.status}",
    )
    return extend(article, *_evidence(check.finding, check)) if check.finding else article


def _evidence(finding: Finding, check: CheckResult) -> Iterator[Element]:
    for label, said in (("Cause", finding.cause), ("Fix", finding.fix)):
        if said:
            yield element("p", element("b", f"{label} "), *_prose(said), class_=label.lower())
    if finding.location:
        yield _source(finding.location)
    batch = _timeline(finding.timeline, check) if finding.timeline and finding.timeline["steps"] else None
    logits = _logits(finding.logits) if finding.logits and finding.logits["tokens"] else None
    if batch is not None or logits is not None:
        yield element("div", batch, logits, class_="pictures")
    if finding.timeline and (arguments := _arguments(finding.timeline)) is not None:
        yield arguments
    facts = finding.where if logits is not None else {**finding.where, "expected": finding.expected, "got": finding.got}
    if any(facts.values()):
        pairs = (element("div", element("dt", key), element("dd", value)) for key, value in facts.items() if value)
        yield element("dl", *pairs, class_="where")
    if finding.operations:
        lines = (element("li", line) for line in finding.operations)
        yield element("details", element("summary", "Operations"), element("ol", *lines), class_="operations")
    if finding.replayable:
        command = f"lpkit replay {text.quoted(finding.replayable)}"
        yield element("p", element("b", "Replay "), element("code", command, class_="command"))


def _prose(said: str) -> Iterator[Child]:
    """What stands in backticks, as code."""
    for number, part in enumerate(said.split("`")):
        yield element("code", part) if number % 2 else part


def _source(location: str) -> Element:
    file, line = split(location)
    rows, column = [], unparsable(location)
    for number, code in excerpt(location):
        kind = "at" if number == line else ""
        rows.append(element("tr", element("td", str(number)), element("td", element("code", code)), class_=kind))
        if number == line and column:
            caret = element("code", " " * (column - 1) + "^")
            rows.append(element("tr", element("td"), element("td", caret), class_="caret"))
    caption = element("figcaption", element("code", f"{shown(file)}:{line}" if line else shown(file)))
    table = element("div", element("table", element("tbody", *rows)), class_="scroll") if rows else None
    return element("figure", caption, table, class_="source")


def _timeline(timeline: Mapping[str, Any], check: CheckResult) -> Element:
    title = f"The batch, {timeline['unit']}s by steps: {check.message}"
    picture = element("div", drawing.drawing(timeline, title), class_="scroll", tabindex="0")
    caption = element("figcaption", "The batch, step by step")
    return element("figure", caption, picture, class_="batch")


def _arguments(timeline: Mapping[str, Any]) -> Element | None:
    """Of every request that uses the plugin; one line for requests with the same."""
    users = text.users_by_arguments(timeline)
    pairs = (
        element("div", element("dt", ", ".join(names)), element("dd", element("code", arguments)))
        for arguments, names in users.items()
    )
    return element("dl", *pairs, class_="arguments") if users else None


def _logits(logits: Mapping[str, Any]) -> Element:
    """Alone and in the batch, a line per token, on one scale."""
    tokens = logits["tokens"]
    values = [float(item[key]) for item in tokens for key in ("model", "alone", "batch")]
    finite = [value for value in values if isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    rows = [
        element(
            "tr",
            element("td", str(item["token"])),
            *(element("td", _number(item[key]), class_=key) for key in ("model", "alone", "batch")),
            element("td", _dots(item, low, high), class_="dots"),
        )
        for item in tokens
    ]
    head = (element("th", word, class_=kind, scope="col") for word, kind in _HEADS)
    said = f"Logits of {len(tokens)} of the {logits['differ']} tokens that differ, of {logits['of']}"
    if len(tokens) == logits["differ"]:
        said = f"Logits of the {'token that differs' if len(tokens) == 1 else 'tokens that differ'}, of {logits['of']}"
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    return element("figure", element("figcaption", said), element("div", table, class_="scroll"), class_="logits")


_HEADS = (("token", ""), ("model", "model"), ("alone", "alone"), ("in the batch", "batch"), ("", "dots"))


def _number(value: str) -> str:
    return value.replace("-inf", "\u2212\u221e").replace("inf", "\u221e").replace("-", "\u2212")


def _dots(item: Mapping[str, str], low: float, high: float) -> Element:
    """The model's logit, and what became of it alone and in the batch."""

    def at(key: str) -> float:
        value = float(item[key])
        if not isfinite(value):
            return 6.0 if value < 0 else SCALE - 6
        return 18 + (SCALE - 36) * ((value - low) / (high - low) if high > low else 0.5)

    root = element("svg", viewBox=f"0 0 {SCALE:g} 16", width=f"{SCALE:g}", height="16", aria_hidden="true")
    ends = {"x1": f"{at('alone'):g}", "x2": f"{at('batch'):g}", "y1": "8", "y2": "8"}
    extend(root, element("line", x1="0", x2=f"{SCALE:g}", y1="8", y2="8", class_="scale"), element("line", **ends))
    for key, radius in (("model", 3), ("alone", 4.5), ("batch", 4.5)):
        extend(root, element("circle", cx=f"{at(key):g}", cy="8", r=f"{radius:g}", class_=key))
    return root


def _all_checks(target: TargetResult) -> Element:
    rows = (
        element(
            "tr",
            element("td", element("a", check.code, href=check_page(check.code)), f" {check.name}"),
            element("td", check.host.upper()),
            element("td", element("span", WORDS[check.status], class_=f"status {check.status}")),
            element("td", f"{check.seconds:.2f} s", class_="seconds"),
            element("td", check.message if check.status not in text.SHOWN else "", class_="message"),
        )
        for check in target.checks
    )
    head = (element("th", word, scope="col") for word in ("check", "on", "status", "time", "note"))
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    summary = element("summary", f"All {len(target.checks)} checks")
    return element("details", summary, element("div", table, class_="scroll"), class_="all")
