"""The page for a browser: complete, self-contained, and safe with any message of a plugin."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import rendered
from lpkit_conformance.report import formats
from lpkit_conformance.report.markup import Markup, fill
from lpkit_conformance.report.text import WORDS
from lpkit_conformance.results import CheckResult, Finding, Report, TargetResult
from lpkit_conformance.testing import compute_check

SUSPECTS = Path(__file__).parents[1] / "suspects"
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{style}}{{#targets}}\x00\x1b[31m\ud800'
CASE = {"extra_args": {"bias": 2.5}}
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Elements with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data

    @property
    def loading(self) -> list[str]:
        """Scripts, data for them, and elements that load or run something else."""
        named = {"application/json": "data"}
        found = ((tag, str(attributes.get("type"))) for tag, attributes in self.elements)
        return [named.get(kind, tag) for tag, kind in found if tag in {"script", "link", "img", "iframe", "object"}]

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if name in (attributes.get("class") or "").split()]


@pytest.fixture(scope="module")
def failed() -> CheckResult:
    found = compute_check("LP202", f"{SUSPECTS / 'bias.py'}:ForgetsToReplace", case=CASE)
    assert found.finding is not None
    saved = replace(found.finding, saved=".lpkit/failures/x.json")
    return replace(found, finding=saved)


def html(*checks: CheckResult, target: str = "mine", more: tuple[TargetResult, ...] = ()) -> str:
    file = io.StringIO()
    formats.write("html", Report((TargetResult(target, ("v1",), checks, "v1", "the stand-in"), *more)), file)
    return file.getvalue()


def test_a_finding_shows_line_batch_logits_arguments_and_replay(failed) -> None:
    page = Page(html(failed))
    assert "lpkit replay .lpkit/failures/x.json" in page.text
    assert '{"extra_args": {"bias": 2.5}}' in page.text
    assert "in the batch" in page.text and str(failed.finding.where["token id"]) in page.text
    assert len([tag for tag, attributes in page.elements if attributes.get("class") == "timeline"]) == 1
    assert len(page.of_class("at")) == 1  # the line at fault, in its excerpt
    number = failed.finding.location.rpartition(":")[2]
    assert number in page.text


def test_every_check_is_on_the_page_and_those_that_need_attention_are_linked(failed) -> None:
    passed = CheckResult("LP001", "is-a-processor", "", "passed", "implements v1")
    page = Page(html(passed, failed, CheckResult("LP203", "remove", "v1", "blocked", "needs LP202")))
    squares = page.of_class("square")
    status = ["square passed", "square failed", "square blocked"]
    assert [square["class"] for square in squares if "title" in square] == status
    assert sorted(square["class"] for square in squares if "title" not in square) == sorted(status), "the legend"
    links = [square["href"] for square in squares if "href" in square]
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert links == ["#LP202-v1"] and {link[1:] for link in links} <= ids
    assert "needs LP202" in page.text


def test_what_two_hosts_say_alike_is_one_finding_that_both_squares_lead_to(failed) -> None:
    page = Page(html(failed, replace(failed, host="v2")))
    assert len(page.of_class("finding")) == 1
    links = [square["href"] for square in page.of_class("square") if "href" in square]
    assert links == ["#LP202-v1", "#LP202-v1"]
    assert len(page.of_class("host")) == 2


def test_several_targets_have_a_navigation_and_no_id_twice(failed) -> None:
    page = Page(html(failed, more=(TargetResult("other", ("v1",), (failed,), error="lost"),)))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = [
        str(attributes["href"])[1:] for tag, attributes in page.elements if str(attributes.get("href")).startswith("#")
    ]
    assert anchors and set(anchors) <= set(ids)
    assert "Could not judge: lost" in page.text


def test_nothing_is_loaded_and_only_the_pages_own_script_runs(failed) -> None:
    text = html(failed)
    page = Page(text)
    assert page.loading == ["data", "script"]
    assert not re.search(r"url\(|@import", text)
    assert all("src" not in attributes for _, attributes in page.elements)


def test_what_a_plugin_says_is_text_and_never_markup(failed) -> None:
    finding = replace(
        failed.finding,
        summary=HOSTILE,
        where={HOSTILE: HOSTILE},
        operations=(HOSTILE,),
        cause=HOSTILE,
        fix=HOSTILE,
        location=f"{HOSTILE}:3",
        saved=HOSTILE,
    )
    timeline = finding.timeline
    request = {**timeline["requests"][0], "id": HOSTILE, "arguments": HOSTILE}
    row = {"position": 0, "request": HOSTILE, "tokens": 1, "prefill": False}
    events = [{"op": "arrive", "request": HOSTILE, "variant": 0}]
    steps = [{"step": 1, "kind": "step", "events": events, "rows": [row]}]
    timeline = {**timeline, "requests": [request], "steps": steps, "differs": None}
    hostile = replace(finding, timeline=timeline, steps=(replace(finding.steps[0], batch=HOSTILE, tokens=(HOSTILE,)),))
    text = html(replace(failed, name=HOSTILE, message=HOSTILE, finding=hostile), target=HOSTILE)
    page = Page(text)
    assert page.loading == ["data", "script"]
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.text.count("<script>alert(1)</script><img src=x onerror=alert(2)>{{style}}{{#targets}}") > 10
    assert not re.search("[\x00-\x08\x0b-\x1f\ud800-\udfff]", text)
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("cause", "exception", "heading", "rest"),
    [
        ("`limit` belongs to r4; nothing writes it", "", "<code>limit</code> belongs to r4", "nothing"),
        ("`'a; b'` differs; it changes", "", "<code>&#x27;a; b&#x27;</code> differs; it changes", ""),
        ("`p` is None; the line expects a value", "TypeError", "the row differs", "<code>p</code> is None; the line"),
        ("", "", "the row differs", ""),
    ],
)
def test_a_finding_stands_under_the_first_sentence_of_its_cause(cause, exception, heading, rest) -> None:
    finding = Finding("the row differs", cause=cause, exception=exception)
    text = html(CheckResult("LP201", "neighbours", "v1", "failed", "the row differs", finding))
    assert f"<h3>{heading}</h3>" in text
    assert ("<b>Seen </b>the row differs" in text) is (heading != "the row differs")
    assert (f"<b>Cause </b>{rest}" in text) if rest else "<b>Cause </b>" not in text


def test_findings_without_evidence_are_shown_as_they_are() -> None:
    bare = CheckResult("LP101", "constructs", "v1", "failed", "it raised", Finding("it raised"))
    page = Page(html(bare, CheckResult("LP204", "one-way-move", "v1", "unexpected_pass", "remove it")))
    assert "it raised" in page.text and "remove it" in page.text
    assert not page.of_class("timeline")


def test_a_template_repeats_sections_and_escapes_what_is_not_markup() -> None:
    rows = [{"name": "<a>"}, {"name": Markup("<b>")}]
    assert fill("{{#rows}}{{name}}, {{end}}{{/rows}}{{^none}}-{{/none}}", {"rows": rows, "none": [], "end": 1}) == (
        "&lt;a&gt;, 1<b>, 1-"
    )
    assert fill("{{#word}}[{{.}}]{{/word}}{{#no}}x{{/no}}", {"word": "{{no}}", "no": ""}) == "[{{no}}]"
    with pytest.raises(KeyError, match="missing"):
        fill("{{missing}}", {})


# -- in a browser ------------------------------------------------------------------------------------------------


MEASURE = """
  all.paper = getComputedStyle(document.querySelector('.finding')).backgroundColor;
  const box = selector => document.querySelector(selector).getBoundingClientRect();
  all.band = Math.round(box('.timeline .band').width);
  all.marked = box('.timeline .culprit').top <= box('.timeline .band.plain').top;
  all.source = Math.round(box('.source .at').height);
  all.copies = [...document.querySelectorAll('.copied + button')].map(button => button.textContent);
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_lays_the_page_out_without_scrolling_sideways(tmp_path, failed, width) -> None:
    measured = rendered(tmp_path, html(failed), MEASURE, width)
    assert 'data-overflows="false"' in measured
    assert 'data-marked="true"' in measured
    assert int(re.search(r'data-band="(\d+)"', measured)[1]) > 40
    assert int(re.search(r'data-source="(\d+)"', measured)[1]) > 10
    assert 'data-copies="Copy,Copy"' in measured


SHOWN = """
  for (const root of document.querySelectorAll('.shown')) root.open = true;
  all.headings = [...document.querySelectorAll('.panel h3')].map(heading => heading.textContent).join('|');
  all.says = document.querySelector('.panel p').textContent;
  const strip = document.querySelectorAll('.shown')[1].querySelectorAll('.token');
  strip[strip.length - 1].dispatchEvent(new KeyboardEvent('keydown', { key: 'Home', cancelable: true }));
  all.then = [...document.querySelectorAll('.panel h3')].map(heading => heading.textContent.slice(0, 12)).join('|');
"""


def test_a_finding_opens_the_failing_token_and_keys_choose_others_of_the_same_finding(tmp_path, failed) -> None:
    step = failed.finding.steps[0]
    longer = replace(failed, host="v2", finding=replace(failed.finding, steps=(step, step, step), location=""))
    measured = rendered(tmp_path, html(failed, longer), SHOWN, 390)
    assert 'data-overflows="false"' in measured and "data-problem" not in measured
    assert f'data-headings="Token 1 of 1: “{step.token}”|Token 3 of 3: “{step.token}”"' in measured
    assert f'data-says="{step.batch}."' in measured
    assert 'data-then="Token 1 of 1|Token 1 of 3"' in measured


@pytest.mark.parametrize(("paper", "dark"), [("255, 255, 255", False), ("23, 27, 34", True)])
def test_a_browser_shows_it_dark_where_its_user_wants_that_and_readable(tmp_path, failed, paper, dark) -> None:
    every = [replace(failed, code=f"LP20{n}", status=status) for n, status in enumerate(WORDS)]
    measured = rendered(tmp_path, html(*every), MEASURE, 1280, dark)
    assert f'data-paper="rgb({paper})"' in measured and 'data-faint=""' in measured


def test_the_page_shows_where_a_line_cannot_be_parsed(tmp_path: Path) -> None:
    file = tmp_path / "mistyped.py"
    file.write_text("import lpkit\ndef process(self, logits, rows)\n", encoding="utf-8")
    finding = Finding("it cannot be parsed", location=f"{file}:2")
    check = CheckResult("LP001", "is-a-processor", "", "failed", finding.summary, finding)
    said = html(check)
    (caret,) = re.findall(r"<code>( *)\^</code>", said)
    assert "def process(self, logits, rows)"[len(caret) - 1] == ")"
    assert Page(said).of_class("caret")
