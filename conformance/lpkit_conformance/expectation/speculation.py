"""Many short runs of one request on V2 with drafts, verified as vLLM does, and the same texts without drafts."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from lpkit.runtime import Request, verify_drafts
from lpkit.runtime.batch.context import context_of
from lpkit.sampling_params import GREEDY_EPSILON

from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.hosts.v2 import V2Driver
from lpkit_conformance.subject.memo import fact
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.subject.worlds import DRAFTING, SPECULATING

TOKENS = 8
"""Output tokens of each run."""

DRAFTS = (5, 4, 2, 0)
"""Drafts of a request, in turn: runs differ in each step."""

LIKELY = 20
"""Tokens that the model chooses from: few, so that each is counted often."""

LOW = range(2, 10)
"""Tokens among them that plugins name in their code: the end, and other small ids."""

NAMING = 4
"""One run in this many has a drafter that only names tokens."""

PROMPT = 6
ABOVE = 12.0
"""Distance of these tokens' logits above the others."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Texts:
    """Texts of runs with drafts.

    Attributes:
        token_ids: ``[runs, tokens]``.
        locals: ``[runs, tokens]`` for each token the number of its row among its request's rows; 0 has no draft.
        target: ``[runs, tokens, vocab]`` the probabilities by which each token was verified.
        acted: True if the plugin changed a row.
    """

    token_ids: torch.Tensor
    locals: torch.Tensor
    target: torch.Tensor
    acted: bool


class Speculation:
    """Runs of one request, which differ in their random numbers only.

    The model's logits depend on the position alone: what a text does to the probabilities is the plugin's doing. Three
    quarters of the runs have drafts from the model, with their probabilities; the others' drafter only names tokens.

    Args:
        subject: the plugin.
        runs: how many.

    Attributes:
        model: ``[positions, vocab]`` probabilities before the plugin.
        likely: the tokens that the model chooses from.
    """

    def __init__(self, subject: Subject, runs: int) -> None:
        self._subject = subject
        self._runs = runs
        self._device = subject.setup.device
        self._params = subject.params(0)
        if self._params.temperature < GREEDY_EPSILON:
            self._params.temperature = 1.0
        self._prompt = subject.model.prompt("drafts", PROMPT, 0)
        case = subject.cases[0]
        self._begun = [*subject.model.begun("drafts", 0), *case.output_token_ids]
        named = [token for token in dict.fromkeys(subject.model.named(case)) if token < subject.setup.vocab_size]
        drawn = [crc32(f"{subject.setup.seed} likely {n}".encode()) % subject.setup.vocab_size for n in range(LIKELY)]
        self.likely = list(dict.fromkeys([*named[: LIKELY // 3], *LOW, *drawn]))[:LIKELY]
        self._raw = subject.model.rows([("drafts", n) for n in range(TOKENS + max(DRAFTS))]) * 0.5
        self._raw[:, self.likely] += ABOVE
        self.model = (self._raw / self._params.temperature).softmax(-1)
        self._random = torch.Generator().manual_seed(subject.setup.seed)
        self._proposed = torch.multinomial(self.model.cpu(), runs, True, generator=self._random).T.numpy()

    def with_drafts(self, accept_rate: float | None = None) -> Texts:
        """Speculative decoding until each run has its tokens; ``accept_rate``: by the lossy method."""
        there = self._subject.within(DRAFTING)
        batch = _Batch(there, self._runs, self._params, self._prompt, self._begun)
        tokens = np.zeros((self._runs, TOKENS + max(DRAFTS) + 1), dtype=np.int64)
        local_of = np.zeros_like(tokens)
        target = torch.zeros(self._runs, tokens.shape[1], self.model.shape[1], device=self._device)
        done = np.zeros(self._runs, dtype=np.int64)
        step = 0
        while len(runs := np.flatnonzero(done < TOKENS)):
            counts = np.array(DRAFTS)[(runs + step) % len(DRAFTS)]
            starts = np.cumsum(counts + 1) - (counts + 1)
            of = np.repeat(np.arange(len(runs)), counts + 1)
            local = np.arange(len(of)) - starts[of]
            at = done[runs][of] + local
            drafted = np.where(local < counts[of], self._proposed[runs[of], at], 0)
            inputs = np.where(local == 0, batch.last[runs[of]], np.roll(drafted, 1))
            places = torch.from_numpy(at).to(self._device)
            processed = batch.apply(self._raw[places], runs, starts, of, local, inputs)
            proposed = self.model[places]
            named = torch.from_numpy(runs[of] % NAMING == NAMING - 1).to(self._device)
            ids = torch.from_numpy(drafted).to(self._device)
            proposed[named] = torch.nn.functional.one_hot(ids[named], proposed.shape[1]).to(proposed)
            processed = processed / self._params.temperature
            verified = verify_drafts(
                processed,
                ids,
                proposed,
                torch.from_numpy(starts).to(self._device),
                torch.from_numpy(counts).to(self._device),
                uniform=self._uniform(len(of)),
                choice=self._uniform(len(runs)),
                accept_rate=accept_rate,
            )
            accepted = verified.accepted.cpu().numpy()
            used = local <= accepted[of]
            who, where = runs[of[used]], at[used]
            tokens[who, where] = np.where(local == accepted[of], verified.token_ids.cpu().numpy()[of], drafted)[used]
            local_of[who, where] = local[used]
            target[torch.from_numpy(who), torch.from_numpy(where)] = processed[torch.from_numpy(used)].softmax(-1)
            batch.commit(
                runs, [tokens[run, done[run] : done[run] + n + 1] for run, n in zip(runs, accepted, strict=True)]
            )
            done[runs] += accepted + 1
            step += 1
        kept = torch.from_numpy(tokens[:, :TOKENS]), torch.from_numpy(local_of[:, :TOKENS])
        return Texts(*kept, target[:, :TOKENS], batch.acted)

    def without(self, token_ids: torch.Tensor) -> torch.Tensor:
        """``[runs, tokens, vocab]`` probabilities of the same texts in steps without drafts."""
        batch = _Batch(self._subject, self._runs, self._params, self._prompt, self._begun)
        runs = np.arange(self._runs)
        probabilities = []
        for n in range(TOKENS):
            raw = self._raw[n].expand(self._runs, -1)
            processed = batch.apply(raw, runs, runs, runs, np.zeros_like(runs), batch.last)
            probabilities.append((processed / self._params.temperature).softmax(-1))
            batch.commit(runs, list(token_ids[:, n : n + 1].numpy()))
        return torch.stack(probabilities, 1)

    def _uniform(self, count: int) -> torch.Tensor:
        return torch.rand(count, generator=self._random).clamp_(1e-7).to(self._device)


class _Batch:
    """An instance of the plugin, and all runs in its slots."""

    def __init__(self, subject: Subject, runs: int, params: object, prompt: list[int], begun: list[int]) -> None:
        self._device = subject.setup.device
        self._driver = V2Driver(subject.plugin.cls, subject.setup.config(runs), subject.setup.device)
        requests = [
            Request(f"run {n}", params, prompt, 10**6, output_token_ids=list(begun))  # type: ignore[arg-type]
            for n in range(runs)
        ]
        self._driver.begin(entering=requests)
        self._fresh = True
        self._slots = np.array([self._driver.slots.slot(request.request_id) for request in requests])
        self.last = np.full(runs, requests[0].last_token_id, dtype=np.int64)
        self.acted = False

    def apply(self, raw: torch.Tensor, runs: Ints, starts: Ints, of: Ints, local: Ints, inputs: Ints) -> torch.Tensor:
        """One step; ``of`` is the index into ``runs`` of each row."""
        if not self._fresh:
            self._driver.begin()
        self._fresh = False
        slots = self._slots[runs]
        first = self._driver.slots.total_len_np[slots].astype(np.int64) - 1
        table = np.stack([slots[of], first[of] + local, inputs, local], 1)
        bounds = first + np.diff(np.append(starts, len(of)))
        after = self._driver.apply_to(raw, context_of(table, starts, bounds.tolist(), self._device))
        self.acted = self.acted or not torch.equal(raw, after)
        return after

    def commit(self, runs: Ints, token_ids: list[Ints]) -> None:
        """Each of these runs gains its tokens."""
        slots = self._slots[runs]
        for n in range(max(len(ids) for ids in token_ids)):
            more = [i for i, ids in enumerate(token_ids) if len(ids) > n]
            self._driver.slots.commit_each(slots[more].tolist(), [int(token_ids[i][n]) for i in more])
        self.last[runs] = [ids[-1] for ids in token_ids]


@fact
def speculating(subject: Subject) -> Subject | None:
    """Return the plugin in an engine with drafts; the expected rows of its requests are the rows without drafts.

    None if its constructor raises: with ``ValueError`` it may refuse them, and anything else LP221 reports.
    """
    there = subject.within(SPECULATING)
    try:
        drive(there)
    except PluginError:
        return None
    return there
