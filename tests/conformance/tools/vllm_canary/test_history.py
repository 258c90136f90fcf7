"""What lpkit takes for granted agrees with itself: the history, the constants, our own interfaces, the page."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from lpkit.interfaces import v1 as v1_module
from lpkit.loading import GROUP
from lpkit_conformance.discovery import releases
from lpkit_conformance.doctor.serving import Serving
from vllm_canary import page
from vllm_canary.facts import FACTS
from vllm_canary.history import FIRST, HISTORY, expected, surprises
from vllm_canary.releases import Release, release_of
from vllm_canary.source import Source, fields, members

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "evidence" / "vllm-releases.md").read_text(encoding="utf-8")
OURS = Source.of_folder(Path(v1_module.__file__).parent)


def since(fact: str, value: str) -> Release:
    """The release in which a fact got that value for the first time."""
    return next(release for release, found in HISTORY[fact] if found == value)


def test_every_fact_has_a_history_in_order() -> None:
    assert [fact.name for fact in FACTS] == list(HISTORY)
    for values in HISTORY.values():
        releases = [release for release, _ in values]
        assert releases == sorted(set(releases))
        assert releases[0] == FIRST
        assert all(before[1] != after[1] for before, after in itertools.pairwise(values))


@pytest.mark.parametrize(
    ("constant", "fact", "value"),
    [
        (releases.DRAFTS_REFUSED_SINCE, "v1-drafts", "passed: refused; installed: left out"),
        (releases.NO_PROMPT_IDS_SINCE, "v1-added", "index, params, prompt or None, output"),
        (releases.VALIDATED_SINCE, "validated", "online"),
        (releases.SWITCH_SINCE, "switch", "a number; 0 unless set"),
        (releases.ASYNC_SINCE, "async-default", "on"),
        (releases.ASYNC_SINCE, "async-cpu", "off"),
        (releases.V2_FOR_SOME_SINCE, "default-runner", "V2 for some models"),
        (releases.V2_FOR_SOME_SINCE, "v2-processors", "none, passed or installed"),
        (releases.V2_DEFAULT_SINCE, "default-runner", "V2"),
        (releases.FORCED_V2_SINCE, "before-the-switch", "hisparse: 0 is refused; watermark: V2, even if it is 0"),
        (releases.V2_PROCESSORS_SINCE, "v2-processors", "runs them"),
        (releases.FLY_SINCE, "acceptance", "standard, synthetic, block, fly; unless set: standard"),
    ],
)
def test_the_doctors_releases_are_those_of_the_sources(constant: Release, fact: str, value: str) -> None:
    assert constant == since(fact, value)


def test_the_first_release_and_the_group_are_the_sdks() -> None:
    assert releases.PLUGINS_SINCE == FIRST
    assert expected("group", (99, 0, 0)) == GROUP


@pytest.mark.parametrize(
    ("fact", "read", "path", "name"),
    [
        ("v1-members", members, "v1.py", "LogitsProcessor"),
        ("v1-update", fields, "v1.py", "BatchUpdate"),
        ("v1-builder", members, "v1.py", "BatchUpdateBuilder"),
        ("v2-members", members, "v2.py", "LogitsProcessor"),
        ("v2-state", fields, "v2.py", "LogitsProcRequestState"),
        ("v2-context", fields, "v2.py", "LogitsContext"),
    ],
)
def test_our_own_interfaces_are_those_of_the_newest_release(fact: str, read, path: str, name: str) -> None:
    assert read(OURS.cls(path, name)) == HISTORY[fact][-1][1]


def test_our_moves_have_the_values_of_the_newest_release() -> None:
    ours = ", ".join(f"{item.name} = {item.value}" for item in v1_module.MoveDirectionality)
    assert ours == HISTORY["v1-moves"][-1][1]


def test_a_difference_is_told_once_with_its_oldest_release() -> None:
    found = {(0, 98, 0): {"group": "else"}, (0, 99, 0): {"group": "else"}, (0, 10, 2): {"group": GROUP}}
    (surprise,) = surprises(found)
    assert (surprise.release, surprise.fact, surprise.expected, surprise.found) == ((0, 98, 0), "group", GROUP, "else")


def releases_on_the_page() -> list[Release]:
    (listed,) = re.findall(r"## What was read\n\n(.+?)\.\n", PAGE)
    return [release_of(version) for version in listed.split(", ")]


def test_the_page_shows_at_least_eight_releases_and_what_the_history_says_of_them() -> None:
    releases = releases_on_the_page()
    assert len(releases) >= 8
    found = {release: {name: expected(name, release) for name in HISTORY} for release in releases}
    tables = "\n".join([*page.tables(found), *page.changes(found)])
    assert tables in PAGE


def test_the_methods_that_keep_the_doctors_engines_on_v1_are_those_of_the_sources() -> None:
    for release, methods in HISTORY["only-on-v1"]:
        assert releases.methods_on_v1(release) == frozenset(methods.split(", ")) - {"-"}


@pytest.mark.parametrize("release", [(0, 31, 0), (0, 32, 0), (0, 33, 0)])
@pytest.mark.parametrize(
    ("feature", "options"),
    [
        ("pipeline parallelism with external_launcher",
         {"distributed-executor-backend": "external_launcher", "pipeline-parallel-size": "2"}),
        ("parallel drafting", {"speculative-config": {"method": "eagle3", "parallel_drafting": True}}),
        ("heterogeneous-vocabulary draft models", {"speculative-config": {"use_heterogeneous_vocab": True}}),
        ("elastic expert parallelism", {"enable-elastic-ep": True}),
        ("mamba cache mode 'all'", {"mamba-cache-mode": "all"}),
        ("stock torch.compile", {"compilation-config": {"mode": 1}}),
        ("sequence parallelism",
         {"compilation-config": {"pass_config": {"enable_sp": True}}, "tensor-parallel-size": "2"}),
    ],
)  # fmt: skip
def test_what_keeps_the_doctors_engines_on_v1_is_what_the_sources_say(
    release: Release, feature: str, options: dict[str, object]
) -> None:
    kept = bool(Serving(options=options).demands(release).v1)
    assert kept == (feature in expected("v2-unsupported", release))


@pytest.mark.parametrize("release", [(0, 28, 0), (0, 29, 0), (0, 30, 0), (0, 31, 0), (0, 32, 0), (0, 33, 0)])
@pytest.mark.parametrize(
    ("feature", "options"),
    [
        ("prefill context parallel", {"prefill-context-parallel-size": "2"}),
        ("dspark speculative decoding", {"speculative-config": {"method": "dspark"}}),
        ("adaptive draft verification", {"speculative-config": {"enable_adaptive_verification": True}}),
        ("batch-sharded sampling", {"enable-batch-sharded-sampling": True}),
        ("pipeline parallelism with async scheduling", {"pipeline-parallel-size": "2", "async-scheduling": True}),
    ],
)
def test_what_the_doctor_says_that_v1_refuses_is_what_the_sources_say(
    release: Release, feature: str, options: dict[str, object]
) -> None:
    refused = bool(Serving(options=options).demands(release).only_v2)
    assert refused == (feature in expected("v1-unsupported", release))


def test_a_feature_and_its_condition_are_a_line_of_the_page() -> None:
    assert page.shown("a_b c; _more() when b > 1 and c") == "a\\_b c<br>`_more()` when `b > 1 and c`"
    assert page.shown("passed: refused; installed: left out") == "passed: refused; installed: left out"
