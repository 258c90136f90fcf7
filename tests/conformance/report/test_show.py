"""The page of ``lpkit show``: whole, small, without a network, and safe with any token and name."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from browser import rendered
from lpkit_conformance.errors import UsageError
from lpkit_conformance.report import show as report
from lpkit_conformance.report.picture import picture
from lpkit_conformance.results import StageView, StepView
from lpkit_conformance.show.results import Compared, Show

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{style}}\x00\ud800"


def stage(name: str, processor: int | None, moved: float, banned: int = 0, tokens: int = 3) -> StageView:
    return StageView(name, processor, moved, 2.5, banned, ("x",) * min(banned, 5), (0.25,) * tokens, (1,) * tokens)


def shown(count: int = 3, token: str = " sea", names: tuple[str, ...] = ("one", "two")) -> Show:
    """Return a reply in which ``two`` acts at the second step, and changes the token."""

    def step(n: int) -> StepView:
        acts = n == 1
        stages = (stage("model", None, 0.0), stage(names[0], 0, 0.0), stage(names[1], 1, 0.4 * acts, 7 * acts))
        plain = " land" if acts else token
        return StepView(token, plain, (token, plain), (token, " land", " sky"), stages, False, acts)

    steps = tuple(step(n) for n in range(count))
    notes = ("it declined the request at admission", "")
    return Show("toy", True, "v2", "vLLM", "{}", 0, ("Row",), names, notes, steps, (token, " land", token))


def page(shown: Show) -> str:
    file = io.StringIO()
    report.write(shown, file)
    return file.getvalue()


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_names_the_processor_that_changed_the_reply_the_token_and_the_other_token() -> None:
    text = Tags(page(shown())).text
    assert "They part at token 2: \u201c\u00b7sea\u201d in place of \u201c\u00b7land\u201d because of two." in text
    assert "acted on 1 of 3 tokens (token 2); shifted 40% of the probability; 7 bans in all" in text
    assert "never acted: it declined the request at admission" in text
    assert "toy" in text


def test_other_values_have_their_reply_and_the_token_where_it_parts() -> None:
    base = shown()
    compared = (
        Compared("top=2", (" sea", "<b>", " x"), 2, base.receipts, ""),
        Compared("top=3", base.reply, None, (), ""),
    )
    file = io.StringIO()
    report.show(replace(base, compared=compared), None, file)
    for said in (Tags(page(replace(base, compared=compared))).text, file.getvalue()):
        assert (
            "top=2: parts at token 2: \u201c<b>\u201d in place of \u201c\u00b7sea\u201d" in said
            and "top=3: the same reply" in said
        )


def test_the_terminal_says_the_same() -> None:
    file = io.StringIO()
    report.show(shown(), None, file)
    said = file.getvalue()
    assert "with     \u00b7sea\u00b7sea\u00b7sea" in said and "without  \u00b7sea\u00b7land\u00b7sea" in said
    assert "because of two" in said and "never acted" in said


@pytest.mark.parametrize("where", ["token", "name", "problem"])
def test_tokens_names_and_problems_are_escaped(where: str) -> None:
    hostile = {
        "token": shown(token=HOSTILE),
        "name": shown(names=("one", HOSTILE)),
        "problem": replace(shown(), problem=HOSTILE),
    }[where]
    found = Tags(page(hostile))
    assert "img" not in found.tags and found.tags.count("script") == 2
    page(hostile).encode()
    data = re.search(r'<script type="application/json">(.*?)</script>', page(hostile), re.S)
    assert data is not None and len(json.loads(data[1])["steps"]) == 3


def test_nothing_is_fetched() -> None:
    text = page(shown())
    assert not re.search(r"(?:src|href)=|url\(|@import|fetch\(|https?://", text)


def test_a_page_of_256_steps_and_three_processors_is_below_a_megabyte_and_a_half() -> None:
    stages = tuple(stage(name, n, 0.123456, 999, 17) for n, name in enumerate(("min_p", "penalties", "dry")))
    built_in = tuple(stage(name, None, 0.123456, 999, 17) for name in ("model", "temperature", "top_k, top_p"))
    step = StepView(" harbour", " sea", (" sea",) * 3, (" harbour",) * 17, (*built_in, *stages), False, True)
    many = replace(
        shown(), names=("min_p", "penalties", "dry"), notes=("",) * 3, steps=(step,) * 256, plain=(" sea",) * 256
    )
    assert len(page(many).encode()) < 1_500_000


def test_a_reply_that_ended_early_says_why_and_shows_what_there_is() -> None:
    text = Tags(page(replace(shown(), problem="two.apply: raised RuntimeError: boom"))).text
    assert "Stopped after 3 tokens: two.apply: raised RuntimeError: boom" in text
    empty = Tags(page(replace(shown(), steps=(), problem="boom"))).text
    assert "Stopped after 0 tokens: boom" in empty


MEASURE = """
  const press = (token, key) => token.dispatchEvent(new KeyboardEvent('keydown', { key, cancelable: true }));
  const heading = () => document.querySelector('.panel h3').textContent;
  all.first = heading();
  all.rows = document.querySelectorAll('.panel tbody tr').length;
  all.columns = document.querySelectorAll('.panel thead th').length;
  const tokens = document.querySelectorAll('.token');
  press(tokens[1], 'ArrowRight');
  all.second = heading();
  all.focused = document.activeElement === tokens[2] && tokens[2].tabIndex === 0 && tokens[1].tabIndex === -1;
  tokens[0].click();
  all.third = heading();
  const plot = document.querySelector('.plot').getBoundingClientRect();
  const click = { bubbles: true, clientX: plot.left + 0.9 * plot.width };
  document.querySelector('.chart').dispatchEvent(new MouseEvent('click', click));
  all.fourth = heading();
  const marked = document.querySelector('.marker').getBoundingClientRect();
  all.marked = marked.left <= click.clientX && click.clientX <= marked.right;
  all.paper = getComputedStyle(document.querySelector('.overview')).backgroundColor;
  all.loaded = performance.getEntriesByType('resource').length;
"""


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_telling_token_is_first_and_keys_or_the_chart_choose_others(tmp_path: Path, width: int, dark: bool) -> None:
    measured = rendered(tmp_path, page(shown(token=" </script> sea")), MEASURE, width, dark)
    assert 'data-overflows="false"' in measured and "data-problem" not in measured
    assert 'data-first="Token 2 of 3:' in measured
    assert 'data-rows="3"' in measured and 'data-columns="4"' in measured
    assert 'data-second="Token 3 of 3:' in measured and 'data-focused="true"' in measured
    assert 'data-third="Token 1 of 3:' in measured and 'data-loaded="0"' in measured
    assert 'data-fourth="Token 3 of 3:' in measured and 'data-marked="true"' in measured
    assert f'data-paper="rgb({"23, 27, 34" if dark else "255, 255, 255"})"' in measured


@pytest.mark.parametrize(("style", "faint"), [("", ""), (".facts { color: #999 }", "facts: 2.6")])
def test_every_text_is_readable_on_its_colour_and_a_faint_one_is_found(tmp_path: Path, style: str, faint: str) -> None:
    names = tuple("abcdefgh")
    acting = [(stage("model", None, 0.0), stage(name, n, 1.0, 3)) for n, name in enumerate(names)]
    steps = tuple(StepView(" x", " y", (" y",) * 8, (" x", " y", " z"), stages, False, True) for stages in acting)
    many = page(Show("toy", names=names, notes=("",) * 8, steps=steps)).replace("</style>", f"{style}</style>")
    for dark in (False, True)[: 1 if style else 2]:
        assert f'data-faint="{faint}' in (measured := rendered(tmp_path, many, "", 1280, dark))
        assert style or 'data-faint=""' in measured


# -- the picture ---------------------------------------------------------------------------------------------------


SVG = "{http://www.w3.org/2000/svg}"


def texts(text: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(text).iter(f"{SVG}text")]


def test_a_picture_names_the_processors_the_token_and_the_token_in_whose_place_it_came() -> None:
    found = texts(picture(shown()))
    assert found[:2] == ["one then two", "\u2026Row\u00b7sea"]
    assert found[-1] == "token 2 of toy; bold: chosen, in place of \u201c\u00b7land\u201d"


def test_a_banned_token_has_no_bar_after_the_processors() -> None:
    base = shown()
    stages = base.steps[1].stages
    banning = replace(stages[2], probabilities=(0.75, 0.0, 0.25), ranks=(1, 0, 2))
    step = replace(base.steps[1], stages=(*stages[:2], banning))
    drawn = picture(replace(base, steps=(base.steps[0], step, base.steps[2])))
    assert "25% \u2192 banned" in texts(drawn) and "25% \u2192 75%" in texts(drawn)
    bars = [element.get("class") for element in ET.fromstring(drawn).iter(f"{SVG}rect")]
    assert (bars.count("before"), bars.count("after")) == (4, 3)  # the legend has one of each


def test_an_unlikely_token_that_was_chosen_is_drawn_among_the_likely_ones() -> None:
    tokens = (" rare", " plain", *(f" t{n}" for n in range(9)))
    probabilities = (0.0002, 0.0001, *([0.1] * 9))
    view = replace(stage("model", None, 0.0), probabilities=probabilities, ranks=(10, 11, *([1] * 9)))
    step = replace(
        shown().steps[0],
        token=" rare",
        plain=" plain",
        tokens=tokens,
        stages=(view, replace(view, processor=0, moved=0.1)),
    )
    found = texts(picture(replace(shown(), steps=(step,))))
    assert "\u00b7rare" in found and "\u00b7plain" in found and "<0.1% \u2192 <0.1%" in found


def test_a_processor_that_changes_no_token_is_drawn_where_it_moves_most() -> None:
    base = replace(shown(), plain=(" sea",) * 3)
    assert base.telling == 2
    assert replace(base, steps=()).telling is None


def test_tokens_and_names_are_escaped() -> None:
    drawn = picture(shown(token=HOSTILE, names=("one", HOSTILE)))
    assert "<script" not in drawn and len(ET.fromstring(drawn)) > 9


def test_a_reply_in_which_no_processor_acted_cannot_be_drawn() -> None:
    with pytest.raises(UsageError, match="boom"):
        picture(replace(shown(), steps=(), problem="boom"))
    with pytest.raises(UsageError, match="no processor acted"):
        picture(shown(count=1))
