"""Steps by slot give the bits of the same kernels on the rows alone, and so do steps of torch operations, whose
histories kernels read; here under Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import own_edits
import pytest
from interpreted import interpret
from own_edits import OWN_EDITS, OWN_PROCESSES

# Requests come, leave, swap rows and take over slots; some of a batch's do not use the plugin.
CODE = """
import math, random, sys
from unittest import mock
import torch
from lpkit import v1
from lpkit.history.staged import V1History
from lpkit.kernels import fused
from lpkit.rules.document import RULES
from lpkit.rules.when import lane_class
from lpkit.runtime import Request, V2Row, V2Slots, make_config, make_context
from lpkit.sampling_params import SamplingParams
from own_edits import CASE, OWN_EDITS, OWN_PROCESSES, PROCESS_CASE
from plugins_here import FOLDERS, announced

SLOTS, VOCAB, CPU = 5, 2100, torch.device("cpu")
in_python = sys.argv[2:] == ["python"]
name = sys.argv[1]
conditional = name in RULES  # a step of a document, with a condition
if conditional:
    cls = lane_class(RULES[name].processor, sys.argv[2])
    case = {"extra_args": {"step": "/0", **eval(sys.argv[3])}}
elif name in OWN_EDITS:
    cls, case = OWN_EDITS[name], CASE
elif name in OWN_PROCESSES:
    cls, case = OWN_PROCESSES[name], PROCESS_CASE
else:
    cls, case = next(announced(folder) for folder in FOLDERS if folder.name == name)
whole, few = fused.together(fused.WHOLE_ROWS), fused.together(fused.FEW)
config = make_config(max_num_seqs=SLOTS, vocab_size=VOCAB, max_model_len=64)
generator, chance = torch.Generator().manual_seed(3), random.Random(3)

def made(*given):
    with (
        mock.patch.object(fused, "prepare", lambda device: whole),
        mock.patch.object(fused, "prepare_few", lambda device: few),
    ):
        by_slot = cls(*given)
    assert by_slot._by_slot is not None
    if in_python:
        by_slot._by_slot = None
    general = cls(*given)
    assert general._by_slot is None
    return by_slot, general

changed = [False]

stage, slow, steadily = V1History._look, [0], [0]

def seen(self, *given):
    slow[0] += 1
    return stage(self, *given)

def same(by_slot, general, context, rows, steady=False):
    wide = torch.randn(rows, VOCAB + 3, generator=generator) * 4
    wide[0, : VOCAB // 2] = -math.inf
    if "ngram" not in name:  # a NaN prevents a ban on a CPU only
        wide[rows - 1, 7] = math.nan
    given = chance.choice((wide[:, :VOCAB], wide[:, :VOCAB].contiguous()))
    logits = given.clone(memory_format=torch.preserve_format)
    with mock.patch.object(fused, "prepare", lambda device: whole):
        expected = general.apply(logits.clone(), *context)
    python = {} if in_python else {"process": None, "edit": None}  # nothing of the author's runs
    if python:
        assert by_slot._by_slot.recorded or not by_slot._admission.active.all.any()
    steadily[0] += steady
    with (
        mock.patch.multiple(cls, **python) if python else mock.patch.object(fused, "few_for", lambda _: few),
        mock.patch.object(V1History, "_look", seen if steady else stage),
    ):
        found = by_slot.apply(logits, *context)
    assert found is logits
    bits = [torch.where(one != one, math.nan, one).view(torch.int32) for one in (found, expected)]  # any NaN is NaN
    assert torch.equal(*bits)
    changed[0] |= not torch.equal(found, given)

def text(longest):
    ids = [chance.randrange(12) for _ in range(chance.randrange(1, longest))]
    return [*ids, VOCAB + 5] if chance.random() < 0.2 else ids  # a prompt may hold an id beyond the vocabulary

def params(uses):
    extra = {**case["extra_args"]} if uses else {}
    for key, value in extra.items():
        if isinstance(value, float):
            extra[key] = value * chance.choice([0.5, 0.75, 1.0])
        elif key == "target_token":
            extra[key] = chance.randrange(VOCAB)
        elif key == "allowed_tokens":
            extra[key] = chance.sample(range(VOCAB), chance.randrange(1, 9))
        elif key in ("no_repeat_ngram_size", "ngram_size"):
            extra[key] = chance.randrange(1 if name == "lpkit-no-repeat-ngram" else 2, 4)
        elif key in ("loop_times", "loop_tokens"):
            extra[key] = 2
        elif key in ("think_start", "think_end"):
            extra[key] = [chance.randrange(4) for _ in range(chance.randrange(1, 4))]
        elif key == "forced_sequence":
            extra[key] = chance.sample(range(VOCAB), chance.randrange(1, 9))
    if uses and conditional:
        extra |= {"when_from": chance.randrange(3), "when_every": chance.randrange(1, 3), "when_times": 9}
        if sys.argv[2] == "tokens":
            for key in ("when_after", "when_before"):
                extra[key] = [chance.randrange(5) for _ in range(chance.choice([0, 1, 1, 2]))]
    if "loop_times" in extra and chance.random() < 0.5:
        extra["loop_end"] = [chance.randrange(VOCAB)]
    if "cite_also" in extra:
        extra["cite_also"] = [chance.randrange(12) for _ in range(chance.randrange(3))]
    if "synthid_keys" in extra:
        extra["synthid_keys"] = chance.sample(range(99), chance.randrange(1, 5))
        extra |= {"synthid_ngram_len": chance.randrange(2, 5), "synthid_context_history_size": chance.choice([2, 1024])}
        extra["synthid_skip_first_ngram_calls"] = chance.random() < 0.5
    if name in OWN_EDITS and uses:
        extra["ids"] = chance.choices([*range(12), -1, VOCAB + 3], k=chance.choice([1, 4, 1030]))
        extra["values"] = [token / 7 for token in extra["ids"]]
        extra |= {"factor": chance.uniform(0.5, 2), "count": chance.randrange(9), "token": chance.randrange(-1, 9)}
    if name in OWN_PROCESSES and uses:
        extra |= {"share": chance.uniform(0.1, 1), "factor": chance.uniform(0.5, 2), "count": chance.randrange(9)}
    if "logit_bias_ids" in extra:
        extra["logit_bias_ids"] = chance.sample(range(VOCAB), chance.randrange(1, 20))
        extra["logit_bias_values"] = [chance.uniform(-9, 9) for _ in extra["logit_bias_ids"]]
    return SamplingParams(temperature=chance.choice([0.7, 1.3]), extra_args=extra)

with torch.inference_mode():
    pair, rows = made(config, CPU, False), []
    for turn in range(12):
        removed, moved = [], []
        if rows and chance.random() < 0.3:
            removed = [len(rows) - 1]
            rows.pop()
        added = []
        for output in rows:  # a token comes, a placeholder is repaired, or the last is rewritten
            if output and (output[-1] == -1 or chance.random() < 0.1):
                output[-1] = chance.randrange(5)
            else:
                output.append(chance.choice([chance.randrange(5), chance.randrange(5), -1]))
        if len(rows) < SLOTS and chance.random() < 0.8:
            rows.append([])
            prompt = text(40 * (turn + 1))
            added.append((len(rows) - 1, params(chance.random() < 0.7), prompt, rows[-1]))
        if len(rows) > 1 and chance.random() < 0.4:
            moved.append((0, len(rows) - 1, v1.MoveDirectionality.SWAP))
            rows[0], rows[-1] = rows[-1], rows[0]
        for processor in pair:
            processor.update_state(v1.BatchUpdate(len(rows), [i for i in removed if i >= len(rows)], added, moved))
        if rows:
            same(*pair, (), len(rows))
        if not rows or turn % 2:
            continue
        for output in rows:
            output[-1:] = [chance.randrange(5)]
        same(*pair, (), len(rows))
        for step in range(4):
            for output in rows:
                output.append(chance.randrange(5))
            for processor in pair:
                processor.update_state(None)
            same(*pair, (), len(rows), steady=step > 0)  # the first may look at outputs that had not grown

    slots = V2Slots(SLOTS, 500, CPU, vocab_size=VOCAB)
    pair, held, lengths = made(config, slots.state), {}, {}
    for turn in range(8):
        gone = [request_id for request_id in held if chance.random() < 0.3]
        for request_id in gone:
            del held[request_id]
        come = []
        if len(held) < SLOTS:
            request = Request(f"r{turn}", params(chance.random() < 0.7), text(40 * (turn + 1)), 9)
            come.append(request)
        for request, slot in slots.change(gone, come):
            held[request.request_id] = slot
            lengths[slot] = len(request.prompt_token_ids)
            assert len({processor.add_request(slot, request.params) for processor in pair}) == 1
        for processor in pair:
            processor.apply_staged_writes()
        order = chance.sample(sorted(held.values()), len(held))
        drafts = chance.choice([0, 0, 2])
        places = [(slot, n) for slot in order for n in range(1 + drafts)]
        positions = [V2Row(slot, lengths[slot] - 1 + n, chance.randrange(-1, 12)) for slot, n in places]
        if positions:
            same(*pair, (make_context(positions, CPU),), len(positions))
assert changed[0]
assert slow[0] == 0 < steadily[0]
"""

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

RULES = ("allowed-tokens", "min-p", "target-token", "temperature", "top-n-sigma", "truncation")
SPARSE = ("dry", "logit-bias", "no-repeat-ngram", "ocr-ngram", "penalties")
ANSWERED: tuple[str, ...] = ("cite-from-prompt", "forced-sequence", "greenlist-watermark", "loop-breaker", "synthid")
ANSWERED += ("thinking-budget", "xtc")
CONDITIONAL = (
    ("min_p", "tokens", {"threshold": 0.4}),
    ("bias", "tokens", {"ids": [3, 700, 9], "values": [2.0, -1.0, 4.0]}),
    ("penalties", "tokens", {"repetition": 1.3, "frequency": 0.4}),
    ("xtc", "length", {"probability": 0.5, "threshold": 0.1, "seed": 3}),
)
"""Steps of documents: the rule, what their conditions read, and their numbers."""


def test_by_slot_a_batch_gets_what_its_rows_get_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    interpret(CODE, *((f"lpkit-{rule}",) for rule in (*RULES, *SPARSE, *ANSWERED)), ("lpkit-penalties", "python"))


def test_an_authors_own_step_is_kernels_that_give_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.syspath_prepend(str(Path(own_edits.__file__).parent))
    interpret(CODE, *((name,) for name in (*OWN_EDITS, *OWN_PROCESSES)))


def test_by_slot_a_step_with_a_condition_edits_the_rows_at_which_it_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    interpret(CODE, *CONDITIONAL)
