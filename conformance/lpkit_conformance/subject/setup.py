"""The engine that a plugin is served in: host, case, sizes and surroundings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from lpkit.runtime import ThinkingMarkers, make_config

from lpkit_conformance.programs.generate import Program
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.worlds import USUAL, World
from lpkit_conformance.vllm_api.runners import Runner
from lpkit_conformance.vllm_api.tokenizer import END, load, tokenizer_folder, words_in

T = TypeVar("T")

MAX_MODEL_LEN = 512
MOST_WITH_WORDS = 4096


@dataclass(frozen=True)
class Setup:
    """The engine and the case in which a plugin is served.

    Attributes:
        host: a name of the table of hosts; empty for checks that need none.
        case: arguments that switch the plugin on.
        seed: seed of the simulated model and of the generated programs.
        standin: True if the stand-in replaces vLLM's modules.
        world: the engine's configuration.
        vocabulary: words that have their own tokens; None: the words that the case names.
        turn: the number of this case, and the number of cases.
        others: further given cases, which share batches with this case.
        program: run only this program, in checks that run programs.
        trace: replay only this recorded trace, in this pattern.
        model: fields of the model's configuration, in addition to lpkit's.
        tokenizer: the folder of the model's tokenizer; empty: lpkit makes one.
        bystanders: child processes that the plugin did not start.
        first_rank: choices of the first rank, in a process that stands for the second; else None.
    """

    host: str
    case: Case
    vocab_size: int = 512
    max_num_seqs: int = 8
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seed: int = 0
    standin: bool = False
    world: World = USUAL
    vocabulary: tuple[str, ...] | None = None
    turn: tuple[int, int] = (0, 1)
    others: tuple[Case, ...] = ()
    program: Program | None = None
    trace: tuple[str, str] | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: str = ""
    bystanders: frozenset[int] = frozenset()
    first_rank: dict[str, Any] | None = None

    @property
    def interface(self) -> Runner:
        """The interface that the host drives; several hosts may drive the same interface."""
        return HOSTS[self.host].interface

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Words that the tokenizer has tokens of their own for."""
        return self.vocabulary or words_in(self.case.fields)

    def share(self, programs: Sequence[T]) -> Sequence[T]:
        """Return the share of these programs that this case plays; at least one program."""
        nth, cases = self.turn
        return programs[nth % len(programs) :: cases]

    def config(self, max_num_seqs: int | None = None) -> Any:
        """Return the ``vllm_config`` that the plugin's constructor gets."""
        # A model's vocabulary is often larger than its tokenizer's, and a large tokenizer takes long to load.
        folder = self.tokenizer or tokenizer_folder(min(self.vocab_size, MOST_WITH_WORDS), self.words)
        config = make_config(
            max_num_seqs=max_num_seqs or self.max_num_seqs,
            vocab_size=self.vocab_size,
            max_model_len=self.world.max_model_len,
            eos_token_id=END,
            thinking=ThinkingMarkers(**self.case.reasoning) if self.case.reasoning else None,
            tokenizer=folder,
            device=self.device,
            hf_config=self.model,
        )
        config.model_config.lpkit_tokenizer = partial(load, folder)
        self.world.furnish(config)
        return config
