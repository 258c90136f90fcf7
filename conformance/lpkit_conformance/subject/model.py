"""The simulated model: logits and tokens as a function of seed, request and position."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from zlib import crc32

import torch
from lpkit.runtime import LogitsSource
from lpkit.runtime.batch.logits import VOCAB_MULTIPLE

from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.setup import Setup
from lpkit_conformance.vllm_api.tokenizer import word_ids, words_in

MAX_CACHED_ROWS = 20_000

AHEAD = 8
"""Positions of a request that are computed at once: a step needs the next one only."""

MOST_AHEAD = 4096
"""Largest vocabulary with rows computed ahead."""

TEMPLATE_LEN = 64
"""Most tokens that all prompts share at their beginning, as with a chat template; half of a shorter prompt."""

RARE = 8
"""Of so many tokens of a request's own prompt, one may be any: long prompts differ as sets, too."""

LEVELS = ((1.0, 0.0), (1.25, 5.0), (0.75, -4.0), (1.0, 11.0))
"""Scale and offset of a request's raw logits: models give prompts different values, so thresholds differ by row."""


class Model:
    """The requests' prompts, logits and tokens. Caches aside, it has no state.

    Args:
        setup: vocabulary, seed and device.
        cases: the case and its relatives; ``variant`` is an index into them, modulo their number.

    Attributes:
        usual: the token ids of prompts and outputs: some small ids, and those that the cases name.
    """

    def __init__(self, setup: Setup, cases: Sequence[Case]) -> None:
        self._setup, self._cases = setup, cases
        self._logits: dict[tuple[str, int], torch.Tensor] = {}
        self._streams: dict[tuple[str, str], list[int]] = {}
        likely = [token for case in cases for token in self.named(case)]
        self.usual = sorted({*likely, *range(3, 15)})
        self._column = {token: n for n, token in enumerate(self.usual)}
        self._usual_index = torch.tensor(self.usual, device=setup.device)
        whole = -(-setup.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
        self._source = LogitsSource(whole, setup.seed, setup.device, likely)

    def named(self, case: Case) -> list[int]:
        """Return the token ids that a case's numbers and words may stand for."""
        size = self._setup.vocab_size
        numbers = [token for token in case.token_ids() if 0 <= token < size]
        return numbers + word_ids(words_in(case.fields), size, self._setup.words)

    def prompt(self, request: str, length: int, variant: int | None) -> list[int]:
        """Return the request's prompt; a case's own prompt ids come last."""
        of_case = self._case(variant).prompt_token_ids if variant is not None else ()
        count = max(length - len(of_case), 0 if of_case else 1)
        template = min(count // 2, TEMPLATE_LEN)
        own = self._tokens("prompt", request, count - template)[: count - template]
        for n in range(RARE - 1, len(own), RARE):
            drawn = crc32(f"{self._setup.seed} {request} {n}".encode())
            own[n] = 3 + drawn % (self._setup.vocab_size - 6)  # no id with a meaning of its own, as 0 and stop tokens
        return [*self._tokens("prompt", "", template)[:template], *own, *of_case]

    def rows(self, keys: list[tuple[str, int]]) -> torch.Tensor:
        """Return fresh raw logits ``[len(keys), vocab]`` for (request, position) pairs."""
        if any(key not in self._logits for key in keys):
            if len(self._logits) > MAX_CACHED_ROWS:
                self._logits.clear()
            ahead = range(AHEAD if self._setup.vocab_size <= MOST_AHEAD else 1)
            wanted = dict.fromkeys((name, position + n) for name, position in keys for n in ahead)
            missing = [key for key in wanted if key not in self._logits]
            fresh = self._source.rows(missing)[:, : self._setup.vocab_size]
            levels = torch.tensor([LEVELS[crc32(key.encode()) % len(LEVELS)] for key, _ in missing])
            scale, offset = levels.to(fresh).unsqueeze(2).unbind(1)
            self._logits.update(zip(missing, (fresh * scale + offset).unbind(), strict=True))
        return torch.stack([self._logits[key] for key in keys])

    def emit(self, request: str, variant: int | None, n: int) -> int:
        """Return the token that the model wants as the request's ``n``-th output; :meth:`sampled` is what it gets.

        The host decides, so that a wrong row does not spread.
        """
        return self.emitted(request, variant, n + 1, n)[0]

    def emitted(self, request: str, variant: int | None, count: int, start: int = 0) -> list[int]:
        """Return the wanted outputs from ``start`` up to ``count``."""
        tokens = self._tokens("output", request, count)[start:count]
        of_case = self._case(variant).output_token_ids if variant is not None else ()
        if of_case:
            cycle = len(of_case) + 3
            for n in range(start, count):
                if n % cycle < len(of_case):
                    tokens[n - start] = int(of_case[n % cycle])
        return tokens

    def begun(self, request: str, variant: int | None) -> list[int]:
        """Return the outputs that a request has when it arrives: no row was seen that could forbid them."""
        return self.emitted(request, variant, self._case(variant).generated if variant is not None else 0)

    def sampled(self, wanted: Sequence[int], rows: torch.Tensor) -> list[int]:
        """Return the tokens sampled from these rows ``[n, vocab]``: the wanted token, unless the row masks it.

        The replacement is an unmasked token, if possible a token that requests usually get. It depends on the row's
        masked tokens only, so it is the same alone and in a batch.
        """
        tokens = list(wanted)
        lost = rows.index_select(1, self._usual_index).isneginf().tolist()
        for n, (token, gone) in enumerate(zip(wanted, lost, strict=True)):
            column = self._column.get(token)
            if not (gone[column] if column is not None else rows[n, token].item() == -math.inf):
                continue
            others = [other for other, masked in zip(self.usual, gone, strict=True) if not masked]
            others = others or (~rows[n].isneginf()).nonzero().flatten().tolist() or [token]
            tokens[n] = next((other for other in others if other > token), others[0])
        return tokens

    def _case(self, variant: int) -> Case:
        return self._cases[variant % len(self._cases)]

    def _tokens(self, what: str, request: str, count: int) -> list[int]:
        """Return the first tokens of a request's prompt or output, at least ``count``; not to be changed."""
        stream = self._streams.setdefault((what, request), [])
        while len(stream) < count:
            drawn = hashlib.blake2b(repr((self._setup.seed, what, request, len(stream))).encode()).digest()
            # Few distinct ids, so that repetitions and n-grams occur.
            numbers = (int.from_bytes(drawn[i : i + 8], "little") for i in range(0, len(drawn), 8))
            stream.extend(self.usual[number % len(self.usual)] for number in numbers)
        return stream
