"""A plot has a curve per candidate with the numbers of the JSON, and accepts any name."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from lpkit_conformance.bench.results import Bench, CandidateResult, Point, TargetBench, Times
from lpkit_conformance.report.bench import write_plot
from lpkit_conformance.report.plot import Curve, Panel, plot

SVG = "{http://www.w3.org/2000/svg}"
SECONDS = {1: 2e-4, 8: 5e-4, 256: 1.5e-2}
HOSTILE = '<script>"a&b"</script>\x00'


def candidate(name: str, kind: str, time: float | None) -> CandidateResult:
    return CandidateResult(name, kind, apply=Times(time, time, 3) if time else None, problem="" if time else "raised")


def bench(*vocabs: int) -> Bench:
    points = [
        Point(
            batch,
            vocab,
            batch * vocab * 4,
            (
                candidate("mine on V1", "target", time),
                candidate(HOSTILE, "alternative", None if batch == 8 else 3 * time),
                candidate("one read and write", "floor", time / 2),
            ),
        )
        for vocab in vocabs
        for batch, time in reversed(SECONDS.items())
    ]
    return Bench((TargetBench("mine", points=tuple(points)),), {}, {})


def drawn(found: Bench, tmp_path) -> ET.Element:
    with (tmp_path / "plot.svg").open("w", encoding="utf-8") as file:
        write_plot(found, file)
    return ET.parse(tmp_path / "plot.svg").getroot()


def places(curve: ET.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in curve.attrib["points"].split())]


def test_each_candidate_has_a_curve_in_each_vocabularys_panel(tmp_path) -> None:
    root = drawn(bench(128, 256), tmp_path)
    kinds = [curve.attrib["class"].split()[1] for curve in root.iter(f"{SVG}polyline")]
    assert kinds == ["target", "alternative", "floor"] * 2
    headings = [item.text for item in root.iter(f"{SVG}text") if item.get("class") == "heading"]
    assert headings == ["mine, 128 tokens", "mine, 256 tokens"]


def test_the_points_are_the_numbers_of_the_json_on_logarithmic_axes(tmp_path) -> None:
    found = bench(128)
    target, alternative, floor = map(places, drawn(found, tmp_path).iter(f"{SVG}polyline"))
    assert len(target) == len(floor) == 3
    assert len(alternative) == 2  # the size at which it raised has no point
    sides = found.to_json()["targets"][0]["points"]
    assert {side["batch"]: side["sides"][0]["apply"]["median"] for side in sides} == SECONDS
    assert target[1][0] - target[0][0] == pytest.approx((target[2][0] - target[1][0]) * 3 / 5, abs=0.2)
    halves = [below[1] - above[1] for above, below in zip(target, floor, strict=True)]
    assert halves == pytest.approx([halves[0]] * 3, abs=0.2)
    assert halves[0] > 0  # less time is lower


def test_each_dot_says_its_numbers(tmp_path) -> None:
    said = [dot.findtext(f"{SVG}title") for dot in drawn(bench(128), tmp_path).iter(f"{SVG}circle")]
    assert "mine on V1: 256 requests, 15 ms" in said
    assert "one read and write: 1 requests, 100 us" in said


def test_names_are_text_whatever_they_hold(tmp_path) -> None:
    root = drawn(bench(128), tmp_path)
    assert not list(root.iter(f"{SVG}script"))
    assert any(item.text == '<script>"a&b"</script>?' for item in root.iter(f"{SVG}text"))


@pytest.mark.parametrize(
    "curves",
    [(), (Curve("one point", "target", ((8, 0.25),)),), (Curve("x" * 500, "floor", ((1, 1e-9), (1024, 90.0))),)],
)
def test_few_or_far_points_fit_into_the_panel(curves: tuple[Curve, ...]) -> None:
    root = ET.fromstring(plot("A title", [Panel("A panel", curves)]))
    x, y, width, height = map(float, root.attrib["viewBox"].split())
    for curve in root.iter(f"{SVG}polyline"):
        assert all(x < a < x + width and y < b < y + height for a, b in places(curve))
    assert all(len(item.text or "") <= 60 for item in root.iter(f"{SVG}text"))
    assert sum(item.get("class") == "axis right" for item in root.iter(f"{SVG}text")) >= (1 if curves else 0)
