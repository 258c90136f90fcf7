"""Row changes of engines with beams and drafts, within the rules of ``lpkit.export``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from zlib import crc32

from lpkit_conformance.hosts.export import ExportDriver, ExportProgramHost, Row, Shown
from lpkit_conformance.hosts.requests import ActiveRequest
from lpkit_conformance.subject.calls import Observation, SeenRow
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.tokenizer import END

PAD = 0
"""The token that pads finished rows until the last row of their batch has finished."""

PADDED_STEPS = 2


class BeamsHost(ExportProgramHost):
    """Rows have no names and change their order at each step.

    Some rows copy another row with a different last token, which the plugin may forbid. Finished rows stay for a while,
    padded. In some steps a request has no row, or has a second call with a draft that is taken back.
    """

    def __init__(self, subject: Subject, max_num_seqs: int | None = None) -> None:
        super().__init__(subject, max_num_seqs)
        self._rng = random.Random(f"rows {subject.setup.seed}")
        self._padded: dict[str, tuple[Shown, str]] = {}
        self._ended: set[str] = set()
        self._beams: dict[str, list[int]] = {}

    def _begin(self) -> None:
        for name in self.pool.left:
            if name not in self.pool.waiting:
                active = self.pool.requests[name]
                row = self.driver.shown(active.request)
                self._padded[name] = replace(row, prompt=list(row.prompt), outputs=list(row.outputs)), active.logits_key
        super()._begin()

    def _sample(self, drafts: int, accepted: int) -> Iterator[Observation]:
        actives = self._past_prefill()
        missing = [active for active in actives if self._draw(active, "missing") % 4 == 0]
        present = [active for active in actives if active not in missing]
        tokens = {active.id: self._token_alone(active) for active in missing}
        rows = [*map(self._row, present), *self._fallen(present), *self._filled_up()]
        if rows:
            self._rng.shuffle(rows)
            seen = self._call(rows)
            yield seen
            judged = {item.request: row for row, item in enumerate(seen.rows) if not item.discarded}
            wanted = [self.pool.emit(active)[0] for active in present]
            after = seen.after[[judged[active.id] for active in present]]
            tokens |= zip((active.id for active in present), self.subject.model.sampled(wanted, after), strict=True)
        drafting = [active for active in present if self._draw(active, "draft") % 3 == 0]
        if drafting:
            yield self._call([self._draft(active, tokens[active.id]) for active in drafting])
        for active in actives:
            self._commit(active, [tokens[active.id]])

    def _row(self, active: ActiveRequest) -> Row:
        seen, shown, key = super()._row(active)
        return seen, replace(shown, name=None), key

    def _fallen(self, actives: list[ActiveRequest]) -> Iterator[Row]:
        """Add a beam for each request, with the same tokens except for the last one or two."""
        for active in actives:
            outputs = active.request.output_token_ids
            if not outputs:
                continue
            last = self._beams.get(active.id, [])
            goes_on = len(last) == len(outputs) - 1 and len(outputs) % 2 == 0
            beam = [*(last if goes_on else outputs[:-1]), self._other(active, outputs[-1])]
            self._beams[active.id] = beam
            seen = SeenRow(active.id, active.request.total_len, discarded=True, local=1)
            yield seen, replace(self.driver.shown(active.request), outputs=beam), f"{active.logits_key} beam"

    def _filled_up(self) -> Iterator[Row]:
        """The rows that have finished: an end token, and padding behind it."""
        for name, (shown, key) in list(self._padded.items()):
            shown.outputs.append(PAD if name in self._ended else END)
            self._ended.add(name)
            position = len(shown.prompt) + len(shown.outputs)
            yield SeenRow(name, position, discarded=True, local=1), shown, f"{key} filled up"
            if shown.outputs[-PADDED_STEPS:] == [PAD] * PADDED_STEPS:
                del self._padded[name]

    def _draft(self, active: ActiveRequest, right: int) -> Row:
        """The row behind a draft that is rejected."""
        seen = SeenRow(active.id, active.request.total_len + 1, discarded=True, local=1)
        shown = self.driver.shown(active.request)
        outputs = [*shown.outputs, self._other(active, right)]
        return seen, replace(shown, outputs=outputs), f"{active.logits_key} rejected"

    def _token_alone(self, active: ActiveRequest) -> int:
        """The next token of a request that has no row: what it would get alone."""
        alone = ExportDriver(self.subject.plugin.cls, self.subject.setup.config(2), self.subject.setup.device)
        row = alone.step(self.subject.model.rows([(active.logits_key, active.request.total_len)]), [active.request])
        return self.subject.model.sampled(self.pool.emit(active), row)[0]

    def _draw(self, active: ActiveRequest, what: str) -> int:
        return crc32(f"{active.logits_key} {active.request.total_len} {what}".encode())

    def _other(self, active: ActiveRequest, right: int) -> int:
        """Return a token that the request does not get, often a token that the plugin waits for."""
        likely = [token for token in self.subject.setup.case.token_ids() if token < self.subject.setup.vocab_size]
        tokens = [token for token in (*likely, *range(3, 15)) if token != right]
        chosen: int = tokens[self._draw(active, "other") % len(tokens)]
        return chosen
