"""Unusual engine configurations, and the requests served under each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _as_it_is(config: Any) -> None:
    pass


@dataclass(frozen=True)
class World:
    """One engine.

    Attributes:
        name: its name in reports, after "an engine with".
        furnish: changes the configuration.
        outputs: tokens that requests have generated when they enter, as after a preemption.
        beyond: True if prompts hold ids outside the vocabulary, as of embeddings and added tokens.
        variants: of the requests that are served together there; None: a request that does not use the plugin.
        steps: number of steps that the requests are served for.
        peer: the engine that gives each request the logits that it must get here, for a report: by default the
            same engine, with the request alone.
        names_ids: True if the vocabulary is so large that half precision cannot hold its ids: the tokens that a
            request names or holds are compared with those of a small vocabulary, not the requests with each other.
        recorded: True if steps that lpkit can record are repeated without the plugin's Python; requests come and go.
        may_refuse: True if the constructor may refuse the configuration with a ``ValueError``.
        fix: the key of LP221's advice for a plugin that fails in it; empty where the check gives the advice.
    """

    name: str
    furnish: Callable[[Any], None] = _as_it_is
    more_tokens: int = 0
    max_model_len: int = 512
    outputs: int = 0
    beyond: bool = False
    variants: tuple[int | None, ...] = (0, None, 1, 2)
    steps: int = 3
    peer: str = "alone"
    names_ids: bool = False
    recorded: bool = False
    may_refuse: bool = False
    fix: str = ""


USUAL = World("nothing special")

FIRST_RANK = "on the first rank"
"""The peer of a second rank: the usual engine."""


DRAFTS = 5
"""Of a request in a step at most, in any check."""


def _drafts(config: Any, adaptive: bool = False) -> None:
    config.speculate(DRAFTS, adaptive=adaptive)


def _drafts_ahead(config: Any) -> None:
    config.scheduler_config.async_scheduling = True
    _drafts(config, adaptive=True)


def _asynchronous(config: Any) -> None:
    config.scheduler_config.async_scheduling = True
    config.model_config.hf_config.eos_token_id = [2, 1]


def _without_end(config: Any) -> None:
    config.model_config.hf_config.eos_token_id = None


def _without_tokenizer(config: Any) -> None:
    config.model_config.skip_tokenizer_init, config.model_config.lpkit_tokenizer = True, None


def _second_rank(config: Any) -> None:
    parallel = config.parallel_config
    parallel.tensor_parallel_size, parallel.world_size, parallel.rank = 2, 2, 1


SECOND_RANK = World(
    "two ranks, on the second one",
    _second_rank,
    peer=FIRST_RANK,
    fix="ranks",
)

DRAFTING = World(
    "speculative decoding",
    _drafts,
    may_refuse=True,
    fix="drafting",
)

RECORDED = World(
    "steps that are repeated without the plugin's Python, as on a GPU",
    variants=(0, 1, 2, None, 3),
    recorded=True,
    peer="in its own Python",
    fix="recorded",
)

SPECULATING = World("drafts of which some are not verified, under asynchronous scheduling", _drafts_ahead)

BEYOND = World("prompt ids outside the vocabulary", beyond=True)

LONG = World(
    "requests of 1,030 output tokens",
    max_model_len=2048,
    outputs=1030,
    fix="long",
)

WORLDS = (
    World(
        "a vocabulary that is not a multiple of 32",
        more_tokens=77,
        may_refuse=True,
        fix="words",
    ),
    LONG,
    World(
        "a request of 20,000 output tokens",  # whether that raises: what is compared takes as long again for each
        max_model_len=20_600,
        outputs=20_000,
        variants=(0,),
        steps=1,
        fix="longest",
    ),
    World(
        "asynchronous scheduling and several end tokens",
        _asynchronous,
        fix="ends",
    ),
    World("a model without an end token", _without_end, fix="no end"),
    World(
        "no tokenizer",
        _without_tokenizer,
        fix="no tokenizer",
    ),
    DRAFTING,
    SECOND_RANK,
    World(
        "a vocabulary beyond 65,536 tokens",
        more_tokens=70_000,
        names_ids=True,
        fix="vocabulary",
    ),
)
"""The configurations that a plugin must support."""
