"""On V1 a processor reads the live lists of its requests, and copies new tokens only."""

from __future__ import annotations

import logging

import pytest
import torch
from lpkit.history.staged import PLACEHOLDER, AdmittedRequest, V1History
from sdk_hosts import VOCAB, V1Host, bits, logits_of, new, params
from sdk_plugins import Spy, Weigh, weighed


class TestHistory:
    def test_only_new_tokens_travel_to_the_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        host = V1Host(Weigh)
        output = list(range(20))
        host.update(2, added=[new(0, params(weigh=True), output), new(1, params(weigh=True), [1])])
        counts: list[int] = []
        store = V1History._store
        monkeypatch.setattr(
            V1History,
            "_store",
            lambda self: counts.append(sum(len(tokens) for *_, tokens in self._missing)) or store(self),
        )
        host.apply(logits_of(2))
        host.apply(logits_of(2))  # nothing new
        output.append(3)
        host.apply(logits_of(2))
        assert sum(counts) == 23 + 4  # texts; the newest token is among a step's numbers

    def test_long_histories_widen_in_powers_of_two_and_keep_what_was_staged(self) -> None:
        host = V1Host(Spy)
        output: list[int] = []
        host.update(1, added=[new(0, params(weigh=True), output)])
        for length in (0, 1, 61, 62, 200):
            output += [i % VOCAB for i in range(len(output), length)]
            host.apply(logits_of(1))
            assert host.processor.shown[0] == [5, 6, 7, *output]
        assert host.processor.widths == [64, 64, 64, 128, 256]

    def test_a_slots_next_occupant_shows_nothing_of_the_last_ones_tokens(self) -> None:
        host = V1Host(Spy, max_num_seqs=1)
        host.update(1, added=[new(0, params(weigh=True), list(range(30)))])
        host.apply(logits_of(1))
        host.update(1, added=[new(0, params(weigh=True), [4], prompt=[8])])
        host.apply(logits_of(1))
        assert host.processor.shown[0] == [8, 4]

    def test_without_prompt_ids_only_the_output_is_known(self) -> None:
        host = V1Host(Weigh)
        host.update(1, added=[new(0, params(weigh=True), [4], prompt=None)])
        logits = logits_of(1)
        assert torch.equal(host.apply(logits.clone())[0], weighed(logits[0], [], [4]))

    def test_neither_list_is_written_to(self) -> None:
        host = V1Host(Weigh)
        prompt, output = [5, 6], [7]
        host.update(1, added=[(0, params(weigh=True), prompt, output)])
        host.apply(logits_of(1))
        assert (prompt, output) == ([5, 6], [7])


class TestPlaceholders:
    """Async scheduling shows -1 for tokens that the host has not seen yet."""

    def test_rows_with_unrepaired_placeholders_stay_as_they_are_with_one_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        host = V1Host(Weigh)
        stuck, fine = [4, -1], [4]
        host.update(2, added=[new(0, params(weigh=True), stuck), new(1, params(weigh=True), fine)])
        with caplog.at_level(logging.WARNING, logger="lpkit"):
            for _ in range(3):
                logits = logits_of(2)
                result = host.apply(logits.clone())
                assert torch.equal(bits(result[0]), bits(logits[0]))
                assert torch.equal(result[1], weighed(logits[1], [5, 6, 7], fine))
                stuck.append(-1)
                fine.append(9)
                host.quiet()
        assert len(caplog.records) == 1
        assert "--logits-processors" in caplog.text
        assert "--no-async-scheduling" in caplog.text


class TestBySlot:
    """Kernels read texts by slot, and store each row's newest token."""

    def follow(self, steps: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
        """Serve two requests, in the rows 0 and 2; return "s" for steps that looked for new tokens one by one."""
        history, ways = V1History(4, torch.device("cpu"), keep_tokens=True), []
        look = V1History._look
        monkeypatch.setattr(V1History, "_look", lambda *given: ways.append("s") or look(*given))
        own = [(0, AdmittedRequest(3, [7, 8], [1])), (2, AdmittedRequest(1, [5] * 60, [2, 3]))]
        by_row, history.changed = dict(own), {0, 2}
        for step in steps:
            for _, entry in own:
                output = entry.output_ids
                if step == "shrinks":
                    del output[-2:]
                if step == "other":  # another token in place of the newest
                    output[-1] += 1
                if step in ("grows", "shrinks"):
                    output += [len(output) + 9] * (1 if step == "grows" else 3)
                elif step not in ("stays", "other") and (step != "one stays" or entry.slot == 1):
                    output.append(PLACEHOLDER if step == "waits" else 4)
            count = len(ways)
            slots, texts, waiting = history.texts([by_row.get(row) for row in range(4)], 3)
            ways += "-" * (len(ways) == count)
            assert waiting == {row for row, entry in own if PLACEHOLDER in entry.output_ids}
            for row, entry in own:
                if PLACEHOLDER in entry.output_ids:
                    assert slots[row] == 4
                    continue
                text = [*(entry.prompt_ids or []), *entry.output_ids]
                assert (slots[row], texts.last[row], texts.drafts[row]) == (entry.slot, len(text) - 1, text[-1])
                texts.held[entry.slot, len(text) - 1] = text[-1]
                assert texts.held[entry.slot, : len(text)].tolist() == text
                assert (texts.kind, int(texts.prompts[entry.slot])) == (2, len(entry.prompt_ids or []))
            assert slots[1] == 4, "nobody's"
            for _, entry in own:
                while PLACEHOLDER in entry.output_ids:
                    entry.output_ids.remove(PLACEHOLDER)
        return "".join(ways)

    def test_a_steady_step_reads_no_list(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.follow(["grows"] * 9, monkeypatch) == "s--------"  # also where a text outgrows 64 tokens

    @pytest.mark.parametrize("event", ["one stays", "other", "waits", "shrinks"])
    def test_any_other_step_looks_again(self, event: str, monkeypatch: pytest.MonkeyPatch) -> None:
        ways = self.follow(["grows"] * 5 + [event] + ["grows"] * 3, monkeypatch)
        assert ways[5] == "s" and ways[-1] == "-"

    def test_the_same_step_again_reads_no_list(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.follow(["grows"] * 5 + ["stays"] * 2 + ["grows"] * 3, monkeypatch) == "s---------"
