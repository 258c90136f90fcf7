"""A plugin leaves the engine's token lists as they are."""

from __future__ import annotations

import sys

import pytest
from lpkit.runtime import Request
from lpkit_conformance.checks.engine_data import judge, leaving_lists
from lpkit_conformance.results import Failed
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from zoo.correct.v1 import Bias


def test_a_report_names_the_list_and_where_a_long_one_begins_to_differ() -> None:
    plugin = Subject.of("bias", Bias, "v1", Case.parse(Bias.CASE))
    request = Request("a", plugin.params(0), [1, 2, 3], output_token_ids=list(range(1000)))
    watch = leaving_lists(plugin, lambda: [request], "long texts")
    with watch("apply", ()):
        pass
    with pytest.raises(Failed) as raised, watch("apply", ()):
        del request.output_token_ids[700:710]
    finding = raised.value.finding
    assert finding.summary == "in an engine with long texts, apply changed the output token list of a"
    assert finding.expected == "1,000 tokens; [700, 701, 702, 703, 704] at 700"
    assert finding.got == "990 tokens; [710, 711, 712, 713, 714] at 700"
    with pytest.raises(Failed, match="prompt token list"), watch("update_state", ()):
        request.prompt_token_ids.append(4)  # type: ignore[union-attr]


def test_lines_are_followed_only_in_the_second_run() -> None:
    plugin = Subject.of("bias", Bias, "v1", Case.parse(Bias.CASE))
    request = Request("a", plugin.params(0), [1, 2, 3])
    traced = []

    def play(follow: bool) -> None:
        with leaving_lists(plugin, lambda: [request], follow=follow)("apply", ()):
            traced.append(sys.gettrace() is not None)
            request.output_token_ids.append(4)

    with pytest.raises(Failed):
        judge(play)
    assert traced == [False, True]
