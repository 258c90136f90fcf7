"""Defects that LP201 must catch in classes that read vLLM's own fields of a request."""

from __future__ import annotations

from typing import Any

from zoo.correct.v1 import Bias
from zoo.registry import defect, sound


@sound("scales its bias by the request's seed")
class ScalesBySeed(Bias):
    def scale(self, params: Any) -> float:
        return float(params.seed or 0) % 7

    def of(self, state: Any, params: Any) -> float:
        return self.scale(params)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        return state and (state[0], state[1] * (1 + self.of(state, params)))


@defect("LP201", "the key of a cache lacks the seed", advice="key-argument", cause="their `seed` differs", fix="`seed`")
class KeyWithoutSeed(ScalesBySeed):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.scales: dict[Any, float] = {}

    def of(self, state: Any, params: Any) -> float:
        return self.scales.setdefault(state, self.scale(params))


@defect("LP201", "the key of a cache lacks max_tokens", advice="key-argument", cause="their `max_tokens` differs")
class KeyWithoutMaxTokens(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return float(params.max_tokens % 11)


@defect("LP201", "the key of a cache lacks min_tokens", advice="key-argument", cause="their `min_tokens` differs")
class KeyWithoutMinTokens(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return float(params.min_tokens)


@defect("LP201", "the key of a cache lacks the temperature", advice="key-argument", cause="`temperature` differs")
class KeyWithoutTemperature(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return float(params.temperature)


@defect("LP201", "the key of a cache lacks the stop tokens", advice="key-argument", cause="`stop_token_ids` differs")
class KeyWithoutStops(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return float(sum(params.stop_token_ids or ()) % 11)


@defect("LP201", "the key of a cache lacks top_p", advice="key-argument", cause="their `top_p` differs")
class KeyWithoutTopP(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return float(params.top_p)


@defect("LP201", "the key of a cache lacks top_k", advice="key-argument", cause="their `top_k` differs")
class KeyWithoutTopK(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return float(params.top_k)


@defect("LP201", "the key of a cache lacks ignore_eos", advice="key-argument", cause="their `ignore_eos` differs")
class KeyWithoutIgnoreEos(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return float(params.ignore_eos)


@defect("LP201", "the key of a cache lacks presence_penalty", advice="key-argument", cause="`presence_penalty` differs")
class KeyWithoutPresence(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return float(params.presence_penalty)


@defect("LP201", "the key of a cache lacks repetition_penalty", advice="key-argument", cause="`repetition_penalty`")
class KeyWithoutRepetition(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return float(params.repetition_penalty)


@defect("LP201", "the key of a cache lacks min_p", advice="key-argument", cause="their `min_p` differs")
class KeyWithoutMinP(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return 20 * float(getattr(params, "min_p", 0.0))


@defect("LP201", "the key of a cache lacks logit_bias", advice="key-argument", cause="their `logit_bias` differs")
class KeyWithoutLogitBias(KeyWithoutSeed):
    def scale(self, params: Any) -> float:
        return sum((params.logit_bias or {}).values())


@sound("the key of a cache has each field that is read")
class KeyOfFields(KeyWithoutSeed):
    FIELDS = ("temperature", "frequency_penalty", "presence_penalty")

    def scale(self, params: Any) -> float:
        return params.temperature + 3 * params.presence_penalty + 7 * params.frequency_penalty

    def of(self, state: Any, params: Any) -> float:
        key = (state, *(getattr(params, name) for name in self.FIELDS))
        if len(self.scales) == 64:
            self.scales.clear()
        return self.scales.setdefault(key, self.scale(params))


@defect(
    "LP201", "the key of a cache has two of three fields", advice="key-argument", cause="`frequency_penalty` differs"
)
class KeyWithoutThirdField(KeyOfFields):
    FIELDS = ("temperature", "presence_penalty")
