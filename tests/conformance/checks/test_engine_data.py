"""A plugin leaves the engine's token lists as they are."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import pytest
import torch
from lpkit.runtime import Request
from lpkit_conformance.checks.engine_data import leaving, leaving_lists
from lpkit_conformance.checks.ladder import play
from lpkit_conformance.programs.generate import Arrive, Step
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


def test_a_report_shows_where_an_array_begins_to_differ() -> None:
    plugin = Subject.of("bias", Bias, "v1", Case.parse(Bias.CASE))
    table = torch.arange(300).view(3, 100)
    watch = leaving(plugin, lambda method, args: {"table": table.clone()}, "{method} changed {name}", "")
    with pytest.raises(Failed) as raised, watch("apply", ()):
        table[1, 20:] = 7
    assert raised.value.finding.expected == "3 x 100; [120, 121, 122, 123, 124] at [1, 20]"
    assert raised.value.finding.got == "3 x 100; [7, 7, 7, 7, 7] at [1, 20]"


class AppendsOutputs(Bias):
    """Appends to the outputs; notes in ``traced`` if its lines are followed."""

    traced: ClassVar[list[bool]] = []

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return outputs

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.traced.append(sys.gettrace() is not None)
        for outputs in self.rows.values():
            outputs.append(4)
        return logits


def test_lines_are_followed_only_in_the_second_run() -> None:
    plugin = Subject.of("appends", AppendsOutputs, "v1", Case.parse(Bias.CASE))
    with pytest.raises(Failed):
        play(
            plugin,
            [Arrive("a", 0), Step()],
            lambda host, follow: leaving_lists(plugin, host.pool.all_requests, follow=follow),
        )
    assert AppendsOutputs.traced == [False, True]
