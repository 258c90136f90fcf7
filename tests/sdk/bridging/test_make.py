"""``lpkit.bridge``: what it makes of V1 classes, of callables and of factories, and what it refuses."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import lpkit
import pytest
import torch
from lpkit import v1, v2
from lpkit.sampling_params import SamplingParams
from sdk_hosts import V1Host, V2Host, logits_of, params


class Raise(v1.LogitsProcessor):
    """Adds 1 everywhere."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        pass

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        pass

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits + 1


def no_repeat(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Never the same token twice in a row."""
    if output_ids:
        logits[output_ids[-1]] = -torch.inf
    return logits


def from_prompt(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    logits[prompt_ids] += 1.0 + len(output_ids)
    return logits


def make(sampling_params: SamplingParams) -> Any:
    amount = (sampling_params.extra_args or {}).get("amount")
    return None if amount is None else functools.partial(shift, amount)


def shift(amount: float, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    return logits + amount


def adds(sampling_params: SamplingParams) -> Any:
    amount = (sampling_params.extra_args or {})["adds"]
    if type(amount) is not float:
        raise TypeError(f"no amount: {amount}")
    return functools.partial(shift, amount)


Bridge = lpkit.bridge(Raise)
Keyed = lpkit.bridge(Raise, keys=("raise",), history="none")
NoRepeat = lpkit.bridge(no_repeat, keys="no_repeat")
FromPrompt = lpkit.bridge(from_prompt)
Shift = lpkit.bridge(make)
GatedShift = lpkit.bridge(make, keys=("amount",), history="none")
MADE = {"Bridge", "Keyed", "NoRepeat", "FromPrompt", "Shift", "GatedShift"}


@pytest.mark.parametrize("name", sorted(MADE))
def test_each_is_called_what_it_is_assigned_to_loads_on_both_runners_and_pickles(name: str) -> None:
    cls = globals()[name]
    assert (cls.__name__, cls.__qualname__, cls.__module__) == (name, name, __name__)
    assert issubclass(cls, v1.LogitsProcessor)
    assert issubclass(cls, v2.LogitsProcessor)
    assert pickle.loads(pickle.dumps(cls)) is cls


def test_a_name_may_be_given_and_elsewhere_it_is_the_targets() -> None:
    assert lpkit.bridge(Raise, name="Other").__name__ == "Other"
    assert [lpkit.bridge(Raise).__name__] == ["Raise"]


def test_the_docstring_says_what_was_bridged() -> None:
    assert (Bridge.__doc__ or "").splitlines()[0] == "Raise on both of vLLM's runners."
    assert "Never the same token twice in a row." in (NoRepeat.__doc__ or "")


def test_a_v1_class_becomes_a_bridge() -> None:
    assert issubclass(Keyed, lpkit.Bridged)
    assert (Keyed.wraps, Keyed.keys, Keyed.history) == (Raise, ("raise",), "none")


def run(cls: Any, sampling: SamplingParams, prompt: list[int], output: list[int]) -> list[torch.Tensor]:
    """Return the result of either runner's host for one row."""
    one = V1Host(cls)
    one.update(1, added=[(0, sampling, prompt, output)])
    two = V2Host(cls)
    two.add(3, sampling, prompt, output)
    logits = logits_of(1)
    return [one.apply(logits.clone())[0], two.apply(logits.clone(), two.context([3]))[0]]


def test_a_callable_is_run_for_requests_that_switch_it_on() -> None:
    expected = no_repeat([4, 5], logits_of(1)[0].clone())
    for value in (True, 1):
        for row in run(NoRepeat, params(no_repeat=value), [1], [4, 5]):
            assert torch.equal(row, expected)
    for other in ({}, {"no_repeat": False}, {"no_repeat": 0}):
        for row in run(NoRepeat, params(**other), [1], [4, 5]):
            assert torch.equal(row, logits_of(1)[0])
    with pytest.raises(ValueError, match="no_repeat: Input should be a valid boolean"):
        NoRepeat.validate_params(params(no_repeat="yes"))


def test_what_validation_refuses_is_declined_where_the_front_end_did_not_ask() -> None:
    for value in (None, [None], {"a": [1]}, "yes"):
        for row in run(NoRepeat, params(no_repeat=value), [1], [4, 5]):
            assert torch.equal(row, logits_of(1)[0]), value


@pytest.mark.parametrize("value", [None, True, [None], {"a": [1]}, "more"], ids=str)
def test_a_factory_that_raises_declines_its_request_and_no_other(value: Any) -> None:
    made = lpkit.bridge(adds, keys="adds", name="Adds")
    for host in (V1Host(made), V2Host(made)):
        if isinstance(host, V1Host):
            host.update(2, added=[(0, params(adds=value), [1], []), (1, params(adds=0.5), [1], [])])
            rows = host.apply(logits_of(2).clone())
        else:
            host.add(0, params(adds=value), [1])
            host.add(1, params(adds=0.5), [1])
            rows = host.apply(logits_of(2).clone(), host.context([0, 1]))
        assert torch.equal(rows[1], logits_of(2)[1] + 0.5)
        assert torch.equal(rows[0], logits_of(2)[0])


def test_without_a_key_a_callable_is_run_for_all_and_with_three_arguments_it_gets_the_prompt() -> None:
    expected = from_prompt([1, 2], [4], logits_of(1)[0].clone())
    for row in run(FromPrompt, params(), [1, 2], [4]):
        assert torch.equal(row, expected)


@pytest.mark.parametrize("cls", [Shift, GatedShift])
def test_a_factory_is_asked_for_each_request(cls: Any) -> None:
    for row in run(cls, params(amount=0.5), [1], []):
        assert torch.equal(row, logits_of(1)[0] + 0.5)
    for row in run(cls, params(other=1), [1], []):
        assert torch.equal(row, logits_of(1)[0])


def test_with_keys_a_factory_is_not_asked_for_others() -> None:
    asked: list[SamplingParams] = []
    cls = lpkit.bridge(lambda sampling_params: asked.append(sampling_params), keys=("mine",), name="Asked")
    host = V2Host(cls)
    assert not host.add(0, params(other=1), [1])
    assert not asked
    host.add(0, params(mine=0), [1])
    assert len(asked) == 1


class V2Only(v2.LogitsProcessor):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (Bridge, {}, "runs on both runners already"),
        (V2Only, {}, "implements only the V2 interface"),
        (dict, {}, "not a V1 logits processor"),
        (7, {}, "takes a V1 class or a callable, not 7"),
        (lambda: None, {}, "takes 0 positional"),
        (lambda a, b, c, d: None, {}, "takes 4 positional"),
        (lambda *rest: None, {}, r"it has \*rest"),
        (no_repeat, {"keys": ("a", "b")}, "one key switches it on, not a, b"),
        (no_repeat, {"history": "all"}, "history must be one of none, length, tokens, not 'all'"),
    ],
)
def test_other_targets_are_refused(target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        lpkit.bridge(target, **options)
