"""The contract of NVIDIA Dynamo 1.6, from its published signature: ``__call__(input_ids, logits[vocab])``, in place."""

from __future__ import annotations

from typing import Any

import lpkit.export
import pytest
import torch
from exported_rules import VOCAB, Counts, counted
from lpkit import dynamo
from lpkit.export.host import ExportHost, follow, sampling_params
from tokenizers import Tokenizer
from tokenizers.models import WordLevel


def test_requests_served_in_turns_are_edited_in_place() -> None:
    one = lpkit.export.dynamo(Counts, strength=2.0)
    running = [([1, 2], []), ([3], []), ([1, 2], [])]
    for step in range(20):
        for turn, (prompt, outputs) in enumerate(running):
            logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(100 * step + turn))
            expected = counted(logits, outputs, 2.0)
            assert one(prompt + outputs, logits) is None
            torch.testing.assert_close(logits, expected)
            outputs.append((step * 7 + turn) % VOCAB)


def test_what_is_exported_to_dynamo_is_what_dynamo_brings_to_vllm() -> None:
    """Around and back: a plugin that wraps the exported processor edits as the processor itself."""

    class Around(dynamo.DynamoLogitsProcessor):
        def new_processors(self, params: Any) -> list[dynamo.BaseLogitsProcessor]:
            return [lpkit.export.dynamo(Counts, strength=2.0)]

    host = ExportHost(Around, VOCAB, torch.device("cpu"))
    row = follow(None, sampling_params(Around, {}), [4], [])
    for step in range(10):
        logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(step))
        torch.testing.assert_close(host.process(logits, [row])[0], counted(logits[0], row.output_ids, 2.0))
        row.output_ids.append(step % 3)


def test_a_processor_that_asks_for_words_is_given_the_callers_tokenizer() -> None:
    class Says(lpkit.LogitsProcessor):
        class Params(lpkit.Params, prefix="says_"):
            words: lpkit.TokenIdsOf

        words = lpkit.token_set()

        def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
            return logits.masked_fill_(self.words[rows], -torch.inf)

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "yes": 5, "no": 7}, unk_token="[UNK]"))
    logits = torch.zeros(VOCAB)
    lpkit.export.dynamo(Says, words=["yes", "no"], tokenizer=tokenizer)([1], logits)
    assert (logits == -torch.inf).nonzero().flatten().tolist() == [5, 7]


def test_an_unknown_parameter_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'strength'\?"):
        lpkit.export.dynamo(Counts, strenght=1.0)
