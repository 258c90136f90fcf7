"""Asynchronous scheduling: V1 shows installed plugins placeholders instead of tokens, and no plugin may act on those.

vLLM's CPU platform switches asynchronous scheduling off; these engines switch it back on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.engine_checks.asks import Answer, Ask
from unusual_engines import AsyncEngine

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
PROBES = Path(__file__).parent / "probes"
NGRAM = "lpkit_no_repeat_ngram.processor:NoRepeatNgram"
COUNT = "portable_probes:Count"


def _ask(name: str, tokens: int, at: int = 0, **extra_args: Any) -> Ask:
    prompt = tuple(random.Random(name).randrange(512) for _ in range(9))
    params = {"max_tokens": tokens, "temperature": 0.0, "extra_args": extra_args or None}
    return Ask(name, prompt, params, at=at, logits=True)


ASKS = (
    _ask("off", 20),
    _ask("no token twice", 24, no_repeat_ngram_size=1),
    _ask("no pair twice", 24, at=2, no_repeat_ngram_size=2),
    _ask("count", 12, at=3, count=505),
)


def chosen(ask: Ask, answer: Answer) -> list[int]:
    """Return the best token that the rule leaves of the model's logits, at each position."""
    size = (ask.params["extra_args"] or {}).get("no_repeat_ngram_size")
    tokens = []
    for position, row in enumerate(answer.rows):
        output = answer.token_ids[:position]
        row = row.copy()
        if size:
            for end in range(size - 1, len(output)):
                if output[end - size + 1 : end] == output[len(output) - size + 1 :]:
                    row[output[end]] = -np.inf
        tokens.append(int(row.argmax()))
    return tokens


Start = Callable[..., EngineProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[EngineProcess] = []

    def begin(runner: str, processors: Sequence[str], folders: Sequence[Path] = (), **options: Any) -> EngineProcess:
        sources = [PROBES, ROOT / "reference_plugins" / "lpkit-no-repeat-ngram" / "src", *folders]
        settings = EngineSettings(runner, extra={"async_scheduling": True})  # type: ignore[arg-type]
        running.append(AsyncEngine(settings, processors, sys_path=sources, **options))
        return running[-1]

    yield begin
    for engine in running:
        engine.close()


def counted(answer: Answer) -> bool:
    return answer.token_ids == [(505 + i) % 512 for i in range(12)]


def test_passed_explicitly_a_plugin_is_right_on_v1(start: Start) -> None:
    answers = start("v1", [NGRAM, COUNT]).generate(ASKS)
    for ask in ASKS[:3]:
        assert answers[ask.request_id].token_ids == chosen(ask, answers[ask.request_id])
    assert counted(answers["count"])


def test_installed_on_v1_it_leaves_rows_with_placeholders_alone_and_says_so_once(
    start: Start, installed: Callable[..., Path], tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    folder = installed("placeholders", ngram=NGRAM, count=COUNT)
    engine = start("v1", [], [folder], log=log)
    answers = engine.generate(ASKS)
    untouched = {ask.request_id: [int(row.argmax()) for row in answers[ask.request_id].rows] for ask in ASKS[:3]}
    assert {name: answers[name].token_ids for name in untouched} == untouched
    assert answers["no token twice"].token_ids != chosen(ASKS[1], answers["no token twice"])
    assert counted(answers["count"]), "lengths are right whatever the placeholders"
    assert log.read_text(encoding="utf-8").count("NoRepeatNgram reads token ids") == 1


def test_installed_on_v2_it_is_right(start: Start, installed: Callable[..., Path]) -> None:
    folder = installed("no-placeholders", ngram=NGRAM, count=COUNT)
    answers = start("v2", [], [folder]).generate(ASKS)
    for ask in ASKS[:3]:
        assert answers[ask.request_id].token_ids == chosen(ask, answers[ask.request_id])
    assert counted(answers["count"])
