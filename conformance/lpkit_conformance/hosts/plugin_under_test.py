"""The plugin under test: its class, how to make instances, and the requests that switch it on."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress
from typing import Any, TypeVar
from zlib import crc32

import torch
from lpkit.loading import interfaces_of
from lpkit.runtime import LogitsSource, Request, ThinkingMarkers, make_config
from lpkit.runtime.batch.logits import VOCAB_MULTIPLE
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.discovery.releases import VALIDATED_SINCE, Release, is_before
from lpkit_conformance.hosts.calls import PluginError, calling
from lpkit_conformance.hosts.worlds import USUAL, World
from lpkit_conformance.instruments.module_state import ModuleState
from lpkit_conformance.processes.peer import Peer
from lpkit_conformance.programs.generate import Program
from lpkit_conformance.settings.cases import Case, make_params, variants
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.vllm_api.runners import Runner
from lpkit_conformance.vllm_api.tokenizer import END, load, tokenizer_folder, word_ids, words_in

T = TypeVar("T")

MAX_MODEL_LEN = 512
MAX_CACHED_ROWS = 20_000

MOST_WITH_WORDS = 4096

USUAL_PROMPT = 5
"""Tokens of a prompt whose length makes no difference."""

FOREIGN_ARGS: tuple[dict[str, Any] | None, ...] = (
    None,
    {},
    {"kv_transfer_params": {"do_remote_decode": False}},
    {"other_plugin_key": 1},
)
"""``extra_args`` that this plugin has nothing to do with."""

TEMPLATE_LEN = 24
"""The most tokens that prompts begin with alike, as chat templates make them do; half of a shorter prompt."""

LEVELS = ((1.0, 0.0), (1.25, 5.0), (0.75, -4.0), (1.0, 11.0))
"""Scale and offset of a request's raw logits: models give prompts different ones, so thresholds are a row's own."""


@dataclass
class PluginUnderTest:
    """One plugin class on one host (``v1``, ``v2``, or empty for checks that need none).

    Attributes:
        target: as the user named it.
        cls: the class; anything at all until LP001 has looked at it.
        host: which of its interfaces is under test.
        case: how to switch it on.
        program: run only this one, in checks that run programs.
        trace: replay only this recorded trace, in this pattern.
        release: of vLLM, by whose rules it is judged; None: of the newest.
        bystanders: processes that this one has started and the plugin has not.
        second: a process that was started ahead for comparing with it.
        foreign: ``extra_args`` of requests that do not use it; those that it fails for are taken out, and the list
            is one for all hosts and cases, so that what is known does not hide the rest.
        modules: what the plugin's modules held before it was used.
        world: how the engine is set up.
        forbids: whether it has forbidden a token that a model wanted.
        patient: whether it is asked for every token of a history, however long; it has raised at another one.
        histories: what requests have generated when they stand at a step, if it does.
        looked_at: the keys of ``extra_args`` that the plugin has read.
        turn: which of how many cases this is.
        words: what the tokenizer has tokens of their own for; by default the words that the case names.
        installed: loaded through an entry point (V1 then never repairs async placeholders).
    """

    target: str
    cls: Any
    host: str
    case: Case
    vocab_size: int = 512
    max_num_seqs: int = 8
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seed: int = 0
    standin: bool = False
    program: Program | None = None
    trace: tuple[str, str] | None = None
    release: Release | None = None
    bystanders: frozenset[int] = frozenset()
    second: Peer | None = None
    acted: bool = False
    solo_runs: object = None
    odd_requests: object = None
    world: World = USUAL
    activity: object = None
    foreign: list[dict[str, Any] | None] = field(default_factory=lambda: list(FOREIGN_ARGS))
    modules: ModuleState | None = None
    forbids: bool = False
    patient: bool = False
    histories: dict[tuple[str, int | None, tuple[int, ...]], tuple[Any, Request]] = field(default_factory=dict)
    looked_at: set[str] = field(default_factory=set)
    turn: tuple[int, int] = (0, 1)
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.words = self.words or words_in(self.case.fields)
        self._logits: dict[tuple[str, int], torch.Tensor] = {}
        self._streams: dict[tuple[str, str], list[int]] = {}

    @cached_property
    def interfaces(self) -> frozenset[str]:
        """Those of ``v1`` and ``v2`` that the class implements."""
        return interfaces_of(self.cls)

    @property
    def interface(self) -> Runner:
        """The interface that its host drives; several hosts may drive one."""
        return HOSTS[self.host].interface

    def share(self, programs: Sequence[T]) -> Sequence[T]:
        """Those of ``programs``, and one at least, that this case plays where all cases share them out."""
        nth, cases = self.turn
        return programs[nth % len(programs) :: cases]

    def restore_modules(self) -> None:
        """Put what the plugin's modules hold back to what it was before they were used, as far as that is known."""
        if self.modules is not None:
            self.modules.restore()

    # The plugin's validation is asked only when a check needs it: it may hang, and that check is then to blame.
    @cached_property
    def cases(self) -> list[Case]:
        """The case and its relatives; ``variant`` is an index into them."""
        return variants(self.case, self.accepts, self.vocab_size)

    @property
    def with_less(self) -> list[int]:
        """The variants that lack one of the case's ``extra_args``."""
        count = len(self.case.fields.get("extra_args") or ())
        return [n for n, case in enumerate(self.cases) if len(case.fields.get("extra_args") or ()) < count]

    @cached_property
    def source(self) -> LogitsSource:
        whole = -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
        return LogitsSource(whole, self.seed, self.device, self._likely)

    @cached_property
    def _likely(self) -> list[int]:
        return [token for case in self.cases for token in self.named(case)]

    def named(self, case: Case) -> list[int]:
        """The token ids that a case's numbers and words may be."""
        numbers = [token for token in case.token_ids() if 0 <= token < self.vocab_size]
        return numbers + word_ids(words_in(case.fields), self.vocab_size, self.words)

    @cached_property
    def _emitted(self) -> list[int]:
        return sorted({*self._likely, *range(3, 15)})

    @cached_property
    def _emitted_index(self) -> torch.Tensor:
        return torch.tensor(self._emitted, device=self.device)

    def config(self, max_num_seqs: int | None = None) -> Any:
        """What the plugin's constructor gets as ``vllm_config``."""
        # A model's vocabulary is often larger than its tokenizer's, and a large one takes long to load.
        folder = tokenizer_folder(min(self.vocab_size, MOST_WITH_WORDS), self.words)
        config = make_config(
            max_num_seqs=max_num_seqs or self.max_num_seqs,
            vocab_size=self.vocab_size,
            max_model_len=self.world.max_model_len,
            eos_token_id=END,
            thinking=ThinkingMarkers(**self.case.reasoning) if self.case.reasoning else None,
            tokenizer=folder,
            device=self.device,
        )
        config.model_config.lpkit_tokenizer = partial(load, folder)
        self.world.furnish(config)
        return config

    # -- requests --------------------------------------------------------------------------------------------

    def refusal(self, params: SamplingParams) -> BaseException | None:
        """What the plugin's own validation raises for the request; None if it lets the request in, or is not asked."""
        validate = getattr(self.cls, "validate_params", None)
        if is_before(self.release, VALIDATED_SINCE):
            return None
        try:
            if validate is not None:
                with calling("validate_params"):
                    validate(params)
        except PluginError as error:
            return error.__cause__
        return None

    def with_case(self, case: Case) -> PluginUnderTest:
        """The same plugin with another case, of which nothing is known yet."""
        return replace(self, case=case, activity=None, solo_runs=None)

    def accepts(self, params: SamplingParams) -> bool:
        """Whether the plugin's own validation lets the request in."""
        return self.refusal(params) is None

    def params(
        self, variant: int | None, greedy: bool = False, salt: int = 0, prompt_len: int = USUAL_PROMPT
    ) -> SamplingParams:
        """Parameters of a request as they reach the engine; ``variant`` None does not use the plugin."""
        return self.completed(self.asked(variant, greedy, salt), prompt_len)

    def completed(self, params: SamplingParams, prompt_len: int = USUAL_PROMPT) -> SamplingParams:
        """``params`` with what vLLM's ``InputProcessor`` fills in once they are validated: ``max_tokens``."""
        if params.max_tokens is None:
            params.max_tokens = self.world.max_model_len - prompt_len
        return params

    def asked(self, variant: int | None, greedy: bool = False, salt: int = 0) -> SamplingParams:
        """Parameters of a request as a server makes them, and ``validate_params`` gets them.

        Requests sometimes carry other plugins' keys, alone or next to this plugin's.
        """
        fields = self._server_fields(salt)
        foreign = copy.deepcopy(self.foreign[salt % len(self.foreign)])
        if variant is None:
            fields["extra_args"] = foreign
        else:
            case = copy.deepcopy(self.cases[variant % len(self.cases)].fields)
            if foreign:
                case["extra_args"] = {**foreign, **(case.get("extra_args") or {})}
            fields.update(case)
        if greedy:
            fields["temperature"] = 0.0
        return make_params(fields, self.looked_at)

    def _server_fields(self, salt: int) -> dict[str, Any]:
        """What a server writes into every request, whatever the client asked for."""
        stops = [self.vocab_size - 2, self.vocab_size - 3]  # no program's model chooses them
        return {
            "temperature": (1.0, 0.75, 1.25)[salt % 3],
            "max_tokens": (None, self.world.max_model_len)[salt % 2],
            "seed": (None, 1000 + salt)[salt % 5 == 1],
            "stop_token_ids": stops if salt % 4 == 2 else None,
        }

    def prompt(self, request: str, length: int, variant: int | None) -> list[int]:
        """The request's prompt; a case's own prompt ids come last."""
        own = self.cases[variant % len(self.cases)].prompt_token_ids if variant is not None else ()
        count = max(length - len(own), 0 if own else 1)
        template = min(count // 2, TEMPLATE_LEN)
        return [
            *self._tokens("prompt", "", template)[:template],
            *self._tokens("prompt", request, count - template)[: count - template],
            *own,
        ]

    def rows(self, keys: list[tuple[str, int]]) -> torch.Tensor:
        """Fresh raw logits ``[len(keys), vocab]`` for (request, position) pairs."""
        missing = [key for key in keys if key not in self._logits]
        if missing:
            if len(self._logits) > MAX_CACHED_ROWS:
                self._logits.clear()
                missing = keys
            fresh = self.source.rows(missing)[:, : self.vocab_size]
            levels = torch.tensor([LEVELS[crc32(key.encode()) % len(LEVELS)] for key, _ in missing])
            scale, offset = levels.to(fresh).unsqueeze(2).unbind(1)
            self._logits.update(zip(missing, (fresh * scale + offset).unbind(), strict=True))
        return torch.stack([self._logits[key] for key in keys])

    def emit(self, request: str, variant: int | None, n: int) -> int:
        """The token that a request's model wants as its ``n``-th output; :meth:`sampled` is what it gets.

        The host decides, so that a wrong row does not spread.
        """
        return self.emitted(request, variant, n + 1, n)[0]

    def emitted(self, request: str, variant: int | None, count: int, start: int = 0) -> list[int]:
        """The same for the first ``count`` outputs, or those from ``start`` on."""
        tokens = self._tokens("output", request, count)[start:count]
        own = self.cases[variant % len(self.cases)].output_token_ids if variant is not None else ()
        if own:
            cycle = len(own) + 3
            for n in range(start, count):
                if n % cycle < len(own):
                    tokens[n - start] = int(own[n % cycle])
        return tokens

    def sampled(self, wanted: Sequence[int], rows: torch.Tensor) -> list[int]:
        """The tokens that come of these rows ``[n, vocab]``: those that are wanted, where a row leaves them.

        Else the next one that it leaves, of those that requests usually get if there is one: a function of the row's
        masked tokens, so that it is the same alone and in a batch.
        """
        tokens = list(wanted)
        if len(tokens) == 1:  # by far the most frequent
            masked = [rows[0, tokens[0]].item() == -math.inf]
        else:
            masked = rows.gather(1, torch.tensor([tokens], device=rows.device).T).isneginf().flatten().tolist()
        for n in compress(range(len(tokens)), masked):
            self.forbids = True
            # Few tokens are looked at, where that will do: this is asked for every row of every step.
            row = rows[n]
            gone = row.index_select(0, self._emitted_index).isneginf().tolist()
            others = [token for token, lost in zip(self._emitted, gone, strict=True) if not lost]
            others = others or (~row.isneginf()).nonzero().flatten().tolist() or [wanted[n]]
            tokens[n] = next((token for token in others if token > wanted[n]), others[0])
        return tokens

    def begun(self, request: str, variant: int | None) -> list[int]:
        """What a request has generated already when it comes: no row was seen that could forbid any of it."""
        count = self.cases[variant % len(self.cases)].generated if variant is not None else 0
        return self.emitted(request, variant, count)

    def _tokens(self, what: str, request: str, count: int) -> list[int]:
        """The first tokens of a request's prompt or output, ``count`` of them at least; not to be changed."""
        found = self._streams.setdefault((what, request), [])
        while len(found) < count:
            drawn = hashlib.blake2b(repr((self.seed, what, request, len(found))).encode()).digest()
            # Few distinct ids, so that repetitions and n-grams occur.
            numbers = (int.from_bytes(drawn[i : i + 8], "little") for i in range(0, len(drawn), 8))
            found.extend(self._emitted[number % len(self._emitted)] for number in numbers)
        return found
