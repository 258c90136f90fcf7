"""A request's chain of steps gives what its steps give one after another, alone, whatever else is in the batch."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lpkit.portable import admission
from lpkit.portable.by_slot import why_not_recorded
from lpkit.rules.chain import MOST_LANES, Rules
from lpkit.rules.document import RULES
from lpkit.rules.when import lane_class
from lpkit.runtime import ThinkingMarkers, make_config
from lpkit.v1 import BatchUpdate
from plugin_hosts import ON_EVERY_HOST, Applied, Asked, on_v1, on_v2
from sdk_hosts import V1Host, V2Host, bits, logits_of, params

VOCAB = 16

TEXT = st.lists(st.integers(0, 3), max_size=9)
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "bias": [{"ids": [3], "values": [2.0]}, {"ids": [0, 5, 1], "values": [1.5, -2.0, 3.0]}],
    "penalties": [{"repetition": 1.3}, {"frequency": 0.5, "presence": -1.0}],
    "dry": [{"multiplier": 0.8, "allowed_length": 1}, {"multiplier": 2.0, "breakers": [3]}],
    "no_repeat_ngram": [{"size": 1}, {"size": 2, "window": 6}],
    "loop": [
        {"times": 2, "tokens": 2},
        {"times": 2, "tokens": 4, "end": [7]},
        {"times": 2, "tokens": 2, "end": [1, 2]},
    ],
    "temperature": [{"low": 0.5, "high": 2.0}, {"smoothing": 0.3}],
    "top_n_sigma": [{"n": 0.5}, {"n": 1.5}],
    "min_p": [{"threshold": 0.05}, {"threshold": 0.3}],
    **{rule: [{"threshold": 0.02}, {"threshold": 0.4}] for rule in ("epsilon", "eta", "top_a", "typical", "tail_free")},
    "xtc": [{"probability": 1.0, "threshold": 0.1}, {"probability": 0.5, "threshold": 0.05, "seed": 3}],
    "ban": [{"phrases": [3]}, {"phrases": [4, 1, 0], "penalty": 1.5}],
    "allow": [{"ids": [3]}, {"ids": [0, 1, 2, 9, 12]}],
    "end": [{"tokens": [2], "at_least": 3, "by": 0.5}, {"tokens": [2, 5], "at_most": 2, "after": 1}],
    "thinking_budget": [{"start": [1], "end": [2, 3], "budget": 1}, {"start": [0, 1], "end": [2], "budget": 0}],
    "choose": [{"texts": [3]}, {"texts": [0, 2, 1], "end": [7, 8]}],
    "force": [{"ids": [4]}, {"ids": [3, 1, 2], "end": 5}],
}
CONDITION = st.fixed_dictionaries(
    {},
    optional={
        "from": st.integers(0, 3),
        "until": st.integers(4, 8),
        "every": st.integers(1, 3),
        "times": st.integers(1, 2),
        "after": st.lists(st.integers(0, 2), min_size=1, max_size=3),
        "before": st.lists(st.integers(0, 2), min_size=1, max_size=3),
    },
)


STEPS = st.builds(
    lambda step, when: {**step, "when": when} if when else step,
    st.sampled_from([{"rule": rule, **numbers} for rule, given in EXAMPLES.items() for numbers in given]),
    st.just({}) | CONDITION,
)
REQUESTS = st.lists(
    st.tuples(
        st.none() | st.lists(STEPS, max_size=4),
        st.lists(st.integers(0, 3), min_size=1, max_size=5),
        TEXT,
        st.sampled_from([0.0, 0.7, 1.0]),
    ),
    min_size=1,
    max_size=5,
)


def asked(document: Any, prompt: Sequence[int], output: Sequence[int], temperature: float = 1.0) -> Asked:
    return Asked(None if document is None else {"rules": json.dumps(document)}, prompt, output, temperature)


def end_of_last(text: Sequence[int], marker: Sequence[int]) -> int:
    ends = [end for end in range(len(marker), len(text) + 1) if text[end - len(marker) : end] == marker]
    return max(ends, default=-1)


def origin(when: dict[str, Any], prompt: list[int], output: list[int]) -> int | None:
    """The position from which a step counts, in plain Python; None without its marker."""
    if "after" not in when:
        return len(prompt)
    since = end_of_last(prompt + output, when["after"])
    return None if since < 0 else since


def acts(when: dict[str, Any], prompt: list[int], output: list[int]) -> bool:
    """The condition of a step, in plain Python."""
    text, since = prompt + output, origin(when, prompt, output)
    if since is None or ("before" in when and end_of_last(text, when["before"]) > since):
        return False
    place = len(text) - since - when.get("from", 0)
    if place < 0 or len(text) - since >= when.get("until", 10**9) or place % when.get("every", 1):
        return False
    return place // when.get("every", 1) < when.get("times", 10**9)


def expected(logits: torch.Tensor, request: Asked, document: Any) -> torch.Tensor:
    """The steps of one request, each by a processor of its rule that has no other request."""
    prompt, output = list(request.prompt), list(request.output)
    for step in document or ():
        rule = RULES[step["rule"]]
        when = step.get("when", {})
        greedy = request.temperature == 0.0 and rule.processor.stage == "sampling"
        if greedy or not acts(when, prompt, output):
            continue
        if step["rule"] == "choose":
            since = (origin(when, prompt, output) or 0) + when.get("from", 0)
            logits = chosen(logits, step, (prompt + output)[since:])
            continue
        args = {key: value for key, value in step.items() if key not in ("rule", "when")}
        alone = Asked({**args, **rule.fixed, "step": ""}, request.prompt, request.output, request.temperature)
        logits = on_v1(lane_class(rule.processor, "none"), logits, [alone])
    return logits


def chosen(logits: torch.Tensor, step: dict[str, Any], written: list[int]) -> torch.Tensor:
    """`choose` of texts of one token, in plain Python; ``written`` since it began to act."""
    left = step["texts"] if not written else []
    if len(written) == 1 and written[0] in step["texts"]:
        left = step.get("end", [])
    if not left or logits[0, left].max() == -torch.inf:
        return logits
    kept = torch.full_like(logits, -torch.inf)
    kept[0, left] = logits[0, left]
    return kept


@ON_EVERY_HOST
@given(requests=REQUESTS)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_each_row_gets_its_own_steps_in_their_order(applied: Applied, requests: Any) -> None:
    logits = logits_of(len(requests), VOCAB)
    batch = [asked(*request) for request in requests]
    result = applied(Rules, logits, batch)
    for row, (request, (document, *_)) in enumerate(zip(batch, requests, strict=True)):
        alone = expected(logits[row : row + 1], request, document)
        assert torch.equal(bits(result[row : row + 1]), bits(alone)), document


@pytest.mark.parametrize(
    ("during", "acts_at"),
    [("reasoning", [False, True, True, True, False]), ("answer", [False, False, False, False, True])],
)
def test_a_step_acts_during_the_reasoning_or_behind_it(during: str, acts_at: list[bool]) -> None:
    ban = [{"rule": "ban", "phrases": [3], "when": {"during": during}}]
    thinking = ThinkingMarkers(start=(8,), end=(9, 10))
    processor = Rules(make_config(max_num_seqs=4, vocab_size=VOCAB, thinking=thinking), torch.device("cpu"), False)
    output = [5]
    added = (0, params(rules=json.dumps(ban)), [1], output)
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=[added], moved=[]))
    for token, acts_here in zip([8, 5, 9, 10, 5], acts_at, strict=True):
        banned = processor.apply(torch.zeros(1, VOCAB))[0, 3].item() == -torch.inf
        assert banned is acts_here, output
        output.append(token)
        processor.update_state(None)


def test_a_step_during_the_reasoning_is_left_out_where_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    ban = [{"rule": "ban", "phrases": [3], "when": {"during": "reasoning"}}]
    logits = logits_of(1, VOCAB)
    assert torch.equal(on_v1(Rules, logits, [asked(ban, [1], [2])]), logits)
    assert "the engine knows no reasoning markers" in caplog.text


def test_equal_documents_share_the_passes_of_their_steps() -> None:
    document = [{"rule": "penalties", "repetition": 1.3}, {"rule": "min_p", "threshold": 0.1}]
    host = V1Host(Rules, vocab_size=VOCAB)
    host.update(3, added=[(row, asked(document, [1], [2]).sampling, [1], [2]) for row in range(3)])
    assert [type(lane).__name__ for lane in host.processor._used] == ["Penalties", "MinP"]


def test_documents_of_another_order_get_passes_between() -> None:
    one, other = {"rule": "ban", "phrases": [3]}, {"rule": "bias", "ids": [3], "values": [2.0]}
    host = V2Host(Rules, vocab_size=VOCAB)
    for slot, document in enumerate(([one, other], [other, one])):
        host.add(slot, asked(document, [1], []).sampling, [1])
    assert len(host.processor._used) == 3


def test_lanes_of_requests_that_left_are_used_again() -> None:
    one, other = {"rule": "ban", "phrases": [3]}, {"rule": "bias", "ids": [3], "values": [2.0]}
    host = V1Host(Rules, vocab_size=VOCAB)
    for document in ([one, other], [other, one], [one, other, one], [other, one, other]) * 3:
        host.update(1, added=[(0, asked(document, [1], []).sampling, [1], [])])
        count = len(host.processor._lanes)
        host.update(0, removed=[0])
    assert count <= len({rule.processor for rule in RULES.values()}) + 4


@pytest.mark.parametrize("applied", [on_v1, on_v2])
def test_a_batch_without_documents_is_not_touched(applied: Applied) -> None:
    logits = logits_of(2, VOCAB)
    assert torch.equal(applied(Rules, logits, [Asked(None), Asked({"another": 1})]), logits)


def test_lanes_that_nobody_uses_go_when_there_are_many() -> None:
    host = V1Host(Rules, max_num_seqs=2, vocab_size=VOCAB)
    names = [rule for rule in EXAMPLES if not rule.startswith(("e", "t"))]
    for first, second in itertools.permutations(names, 2):
        document = [{"rule": rule, **EXAMPLES[rule][0]} for rule in (first, second, first)]
        host.update(1, removed=[0], added=[(0, asked(document, [1], []).sampling, [1], [])])
        assert len(host.processor._lanes) <= MOST_LANES + 3


@pytest.mark.parametrize("applied", [on_v1, on_v2])
def test_a_document_with_a_token_that_the_model_lacks_is_declined_as_a_whole(
    applied: Applied, caplog: pytest.LogCaptureFixture
) -> None:
    document = [{"rule": "bias", "ids": [3], "values": [1.0]}, {"rule": "bias", "ids": [99], "values": [1.0]}]
    logits = logits_of(1, VOCAB)
    assert torch.equal(applied(Rules, logits, [asked(document, [1], [2])]), logits)
    assert "rules, step /1 (bias): ids: token id 99 is outside the vocabulary of 16" in caplog.text


def test_an_unreadable_document_is_declined_with_its_pointer(caplog: pytest.LogCaptureFixture) -> None:
    host = V2Host(Rules, vocab_size=VOCAB)
    assert not host.add(0, params(rules='[{"rule": "min_q"}]'), [1])
    assert "/0/rule" in caplog.text


@pytest.mark.parametrize("step", [{"rule": rule, **numbers} for rule, given in EXAMPLES.items() for numbers in given])
def test_a_step_changes_nothing_before_its_time(step: dict[str, Any]) -> None:
    logits = logits_of(1, VOCAB)
    later = asked([{**step, "when": {"from": 50}}], [1, 2, 3, 1, 2], [3, 1, 2])
    assert torch.equal(bits(on_v1(Rules, logits, [later])), bits(logits))


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_step_is_recorded_with_a_condition_if_it_is_recorded_without(rule: str) -> None:
    reasons = []
    for reads in ("none", "length", "tokens"):
        host = V1Host(lane_class(RULES[rule].processor, reads), vocab_size=VOCAB)
        args = {**EXAMPLES[rule][0], **RULES[rule].fixed, "step": "/0"}
        host.update(1, added=[(0, params(**args), [1, 2], [3])])
        reasons.append(why_not_recorded(host.processor))
    assert reasons == reasons[:1] * 3
    assert bool(reasons[0]) is (rule in ("ban", "choose", "end", "tail_free", "typical"))


def test_there_is_an_example_of_every_rule() -> None:
    assert EXAMPLES.keys() | {"characters"} == RULES.keys()  # which needs a tokenizer


@pytest.mark.parametrize("runner", [V1Host, V2Host])
def test_the_parameters_of_a_step_are_read_once(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    host = runner(Rules, vocab_size=VOCAB)
    request = asked([{"rule": "allow", "ids": [3]}, {"rule": "bias", "ids": [3], "values": [2.0]}], [1], []).sampling
    seen: list[Any] = []
    monkeypatch.setattr(admission, "check_ids", lambda key, value, size: seen.append(key))
    if runner is V1Host:
        host.update(1, added=[(0, request, [1], [])])
    else:
        assert host.add(0, request, [1])
    assert seen == ["ids", "ids"]
