"""``lpkit show --engine vllm``: the same distributions as in lpkit's runtime, and the engine's own choices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lpkit.loading import resolve_target
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.show.model import Toy
from lpkit_conformance.show.playing import Part, Playing, Processor, ShownRequest
from lpkit_conformance.show.results import Show
from lpkit_conformance.show.run import ShowOptions, show

pytestmark = pytest.mark.engine

PLUGIN = """
import lpkit

class Late(lpkit.LogitsProcessor):
    '''Bans the most likely token, at the third token only.'''
    history = "length"
    class Params(lpkit.Params):
        late: bool
    def admit(self, request):
        return request.params.late
    def process(self, logits, rows):
        best = logits.argmax(-1, keepdim=True)
        banned = logits.scatter(1, best, float("-inf"))
        return banned.where((rows.output_len == 2).view(-1, 1), logits)
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    file = tmp_path / "late.py"
    file.write_text(PLUGIN, encoding="utf-8")
    return f"{file}:Late"


def views(shown: Show) -> list[Any]:
    """Return what is known of each step, without vLLM's stages, whose names the engine does not tell."""
    return [
        replace(
            step, stages=tuple(stage for stage in step.stages if stage.processor is not None or stage.name == "model")
        )
        for step in shown.steps
    ]


@pytest.mark.usefixtures("in_process")
def test_the_reply_of_a_greedy_request_is_that_of_the_runtime_with_and_without_the_processors(target: str) -> None:
    case = '{"temperature": 0, "presence_penalty": 0.5, "extra_args": {"late": true}}'
    document = '[{"rule": "ban", "phrases": [" town"]}]'
    options = ShowOptions(rules=document, case=case, host="v1", steps=6)
    ours, theirs = show([target], options), show([target], replace(options, engine=True))
    assert theirs.problem == "" and theirs.judged_with.startswith("a real vLLM")
    assert theirs.plain == ours.plain and theirs.notes == ours.notes
    assert views(theirs) == views(ours) and theirs.reply != theirs.plain


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_the_distributions_of_a_sampled_request_are_those_of_the_runtime_and_the_random_numbers_the_same_without(
    target: str, runner: str, runners: tuple[str, ...]
) -> None:
    if runner not in runners:
        pytest.skip("this vLLM loads no processors on V2")
    fields = {"temperature": 0.9, "top_p": 0.95, "extra_args": {"late": True}}
    case = Case(fields)
    shown = show([target], ShowOptions(case=case.text, host=runner, steps=6, engine=True))
    assert shown.problem == "" and len(shown.steps) == 6
    toy = Toy()
    make = resolve_target(target)
    case = Case({**fields, "seed": 0, "max_tokens": 6})
    run = Playing(ShownRequest(runner, toy, case, toy.encode(toy.prompt), [Processor("late", make)]), [0])
    for n, step in enumerate(shown.steps, 1):
        run.step(toy.tokenizer.get_vocab()[step.token])
        final = run.seen[-1][1][0].softmax(-1)
        expected = [round(float(final[toy.tokenizer.get_vocab()[token]]), 4) for token in step.tokens]
        assert [round(value, 4) for value in step.stages[-1].probabilities] == pytest.approx(expected, abs=2e-4)
        stage = step.of(0)
        assert stage is not None and (stage.moved > 0.01, stage.banned) == (n == 3, n == 3)
        # The sampler draws the same numbers again: where the processor does nothing, it chooses the same token.
        assert n == 3 or step.plain == step.token == step.without[0]
    assert any(isinstance(part, Part) for part, _ in run.seen)
    assert shown.plain[:2] == shown.reply[:2]
