"""Asynchronous scheduling: V1 shows installed plugins placeholders instead of tokens, and no plugin may act on those.

vLLM's CPU platform switches asynchronous scheduling off; these engines switch it back on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.vllm_api.runners import V1, V2, Runner
from rules import chosen, make_ask

pytestmark = pytest.mark.engine

NGRAM = "lpkit_no_repeat_ngram.processor:NoRepeatNgram"
COUNT = "portable_probes:Count"

SETTINGS = {runner: EngineSettings(runner, extra={"async_scheduling": True}) for runner in (V1, V2)}

# From here the model repeats itself, if nothing forbids it.
PROMPT = (433,) * 9
ASKS = (
    make_ask("off", PROMPT, 20),
    make_ask("no token twice", PROMPT, 24, no_repeat_ngram_size=1),
    make_ask("no pair twice", PROMPT, 24, at=2, no_repeat_ngram_size=2),
    make_ask("count", PROMPT, 12, at=3, count=505),
)


@pytest.mark.parametrize(("runner", "passed"), [(V1, True), (V2, False)], ids=["passed on v1", "installed on v2"])
def test_a_plugin_is_right(
    engines: Callable[..., EngineProcess], installed: Callable[..., Path], runner: Runner, passed: bool
) -> None:
    loaded = {"processors": [NGRAM, COUNT]} if passed else {"folders": [installed("b", ngram=NGRAM, count=COUNT)]}
    answers = engines(SETTINGS[runner], **loaded).generate(ASKS)
    for ask in ASKS:
        assert answers[ask.request_id].token_ids == chosen(ask, answers[ask.request_id])


def test_installed_on_v1_it_leaves_rows_with_placeholders_alone_and_says_so_once(
    installed: Callable[..., Path], tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    with EngineProcess(V1, sys_path=[installed("placeholders", ngram=NGRAM, count=COUNT)], log=log) as engine:
        engine.start(SETTINGS[V1])
        answers = engine.generate(ASKS)
    untouched = {ask.request_id: [int(row.argmax()) for row in answers[ask.request_id].rows] for ask in ASKS[:3]}
    assert {name: answers[name].token_ids for name in untouched} == untouched
    assert answers["no token twice"].token_ids != chosen(ASKS[1], answers["no token twice"])
    assert answers["count"].token_ids == chosen(ASKS[3], answers["count"]), (
        "lengths are right whatever the placeholders"
    )
    assert log.read_text(encoding="utf-8").count("NoRepeatNgram reads token ids") == 1
