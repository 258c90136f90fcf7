"""A receipt counts the rows that each step changed, and is logged when the request leaves; it changes no result."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lpkit.portable.on_v2 import V2Binding
from lpkit.rules.chain import Rules
from lpkit.rules.policy import VARIABLE
from lpkit.rules.receipt import Counting, Receipt
from lpkit.runtime import make_config
from lpkit.v1 import MoveDirectionality
from lpkit_conformance.instruments.recorded_steps import recording
from sdk_hosts import HOST_SYNCS, V1Host, V2Host, bits, logits_of, params, recorded_ops

VOCAB = 16
BAN = {"rule": "ban", "phrases": [3], "when": {"every": 2}}
MIN_P = {"rule": "min_p", "threshold": 0.5}
NEVER = {"rule": "bias", "ids": [3], "values": [0.0]}


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    file = tmp_path / "rules.toml"
    file.write_text('receipt = true\nfirst = [{ rule = "ban", phrases = [9] }]\n', encoding="utf-8")
    monkeypatch.setenv(VARIABLE, str(file))
    caplog.set_level(logging.INFO, "vllm.lpkit.rules")
    yield


def asked(*steps: Any, temperature: float = 1.0, label: str = "job") -> Any:
    request = params(temperature=temperature, rules=json.dumps(steps), rules_receipt=label)
    Rules.validate_params(request)
    return request


@pytest.mark.usefixtures("operator")
def test_a_receipt_counts_the_rows_that_each_step_changed_on_v1(caplog: pytest.LogCaptureFixture) -> None:
    host = V1Host(Rules, vocab_size=VOCAB)
    outputs: list[list[int]] = [[], []]
    added = [(0, asked(BAN, MIN_P, NEVER), [1], outputs[0]), (1, asked(MIN_P, label="other"), [1], outputs[1])]
    host.update(2, added=added)
    for _ in range(3):
        host.apply(logits_of(2, VOCAB))
        for output in outputs:
            output.append(5)
    host.update(2, moved=[(0, 1, MoveDirectionality.SWAP)])
    host.apply(logits_of(2, VOCAB))
    host.update(1, removed=[1])
    steps = "first/0 ban 4 of 4 rows, /0 ban 2 of 4 rows, /1 min_p 4 of 4 rows, /2 bias 0 of 4 rows"
    assert caplog.messages == [f"lpkit rules: receipt 'job': {steps}"]
    host.update(0, removed=[0])
    assert caplog.messages[1:] == ["lpkit rules: receipt 'other': first/0 ban 4 of 4 rows, /0 min_p 4 of 4 rows"]
    assert host.processor.receipt_counts == {
        "ban": {"": [1, 2], "first/0": [2, 8]},
        "min_p": {"": [2, 8]},
        "bias": {"": [1, 0]},
    }


@pytest.mark.usefixtures("operator")
def test_on_v2_a_receipt_is_written_when_another_request_takes_the_slot(caplog: pytest.LogCaptureFixture) -> None:
    host = V2Host(Rules, vocab_size=VOCAB)
    host.add(2, asked(BAN, MIN_P), [1])
    host.add(0, params(), [1, 2])
    for _ in range(2):
        host.apply(logits_of(2, VOCAB), host.context([0, 2]))
    host.apply(logits_of(4, VOCAB), host.context([2, 0], {2: [4, 4]}))
    assert not caplog.messages
    host.add(2, params(), [1])
    said = "lpkit rules: receipt 'job': first/0 ban 5 of 5 rows, /0 ban 4 of 5 rows, /1 min_p 5 of 5 rows"
    assert caplog.messages == [said]
    host.apply(logits_of(2, VOCAB), host.context([0, 2]))
    host.add(2, asked(MIN_P, label="next"), [1])
    assert caplog.messages[1:] == ["lpkit rules: receipt '': first/0 ban 1 of 1 rows"]


@pytest.mark.usefixtures("operator")
def test_a_greedy_request_gets_the_steps_that_never_ran(caplog: pytest.LogCaptureFixture) -> None:
    host = V1Host(Rules, vocab_size=VOCAB)
    host.update(1, added=[(0, asked(MIN_P, temperature=0.0), [1], [])])
    host.apply(logits_of(1, VOCAB))
    host.update(0, removed=[0])
    assert "first/0 ban 1 of 1 rows, /0 min_p 0 of 0 rows" in caplog.text


@pytest.mark.usefixtures("operator")
def test_a_step_changes_the_same_bits_and_waits_for_no_device_with_a_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (BAN, MIN_P, {"rule": "penalties", "repetition": 1.5})

    def result() -> tuple[torch.Tensor, list[str]]:
        host = V2Host(Rules, vocab_size=VOCAB)
        host.add(1, asked(*steps), [1, 2], [3])
        logits, context = logits_of(1, VOCAB), host.context([1])
        with recorded_ops() as ops:
            return host.apply(logits, context), ops

    counted, operations = result()
    assert not HOST_SYNCS & set(operations)
    monkeypatch.delenv(VARIABLE)
    uncounted, fewer = result()
    uncounted[0, 9] = -torch.inf  # the operator's step
    assert torch.equal(bits(counted), bits(uncounted))
    assert len(fewer) < len(operations)


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("recorded", [True, False])
def test_the_rows_of_a_step_are_found_once(recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() if recorded else nullcontext():
        host = V2Host(Rules, vocab_size=VOCAB)
        host.add(1, asked({"rule": "penalties", "repetition": 1.5}, temperature=0.0), [1, 2], [3])
    found: list[bool] = []
    by_slot = V2Binding.by_slot
    monkeypatch.setattr(V2Binding, "by_slot", lambda self, *given: found.append(given[-1]) or by_slot(self, *given))
    host.apply(logits_of(1, VOCAB), host.context([1]))
    assert found == [False, recorded]  # of the operator's ban, which is not recorded, and of the penalties


@pytest.mark.usefixtures("operator")
def test_a_receipt_that_the_device_still_copies_is_written_by_a_later_step(caplog: pytest.LogCaptureFixture) -> None:
    processor = V1Host(Rules, vocab_size=VOCAB).processor
    copied = [False]
    late = Receipt(processor._receipts, "late", ())
    processor._receipts._waiting.append((late, SimpleNamespace(query=lambda: copied[0])))
    processor.apply(logits_of(1, VOCAB))
    assert not caplog.messages
    copied[0] = True
    processor.apply(logits_of(1, VOCAB))
    assert caplog.messages == ["lpkit rules: receipt 'late': "]


def test_without_the_option_nothing_counts() -> None:
    processor = V1Host(Rules, vocab_size=VOCAB).processor
    assert processor.receipt_counts is None
    assert not any(isinstance(lane, Counting) for lane in processor._lanes)


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(("rank", "counts"), [(0, True), (1, False), (2, True)])
def test_one_process_of_a_tensor_parallel_group_counts(rank: int, counts: bool) -> None:
    config = make_config(max_num_seqs=4, vocab_size=VOCAB)
    config.parallel_config = SimpleNamespace(rank=rank, tensor_parallel_size=2)
    assert (Rules(config, torch.device("cpu"), False).receipt_counts is not None) is counts
