"""Processors without history in transformers' own continuous batching, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import lpkit
import lpkit.export
import pytest
import torch
import transformers
from lpkit import v1

VOCAB = 40


class Only(lpkit.LogitsProcessor):
    """Leaves one token."""

    class Params(lpkit.Params, prefix="only_"):
        token: lpkit.TokenId

    token = lpkit.column(torch.int64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        chosen = self.token[rows].unsqueeze(1)
        return torch.full_like(logits, -torch.inf).scatter(1, chosen, logits.gather(1, chosen))


class Hottest(lpkit.LogitsProcessor):
    """Leaves tokens within 1 of the likeliest."""

    stage = "sampling"

    class Params(lpkit.Params, prefix="hottest_"):
        on: bool

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.masked_fill(logits < logits.amax(1, keepdim=True) - 1, -torch.inf)


class Other(Only): ...


class Hotter(Hottest): ...


class Reads(Only):
    history = "tokens"


class OldClass(v1.LogitsProcessor):
    def __init__(self, *config: Any) -> None: ...

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None: ...

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    return model


def manager_of(model: Any, **options: Any) -> Any:
    generation = transformers.GenerationConfig(
        **{"do_sample": False, "max_new_tokens": 5, "eos_token_id": -1, "pad_token_id": 0, **options}
    )
    batching = transformers.ContinuousBatchingConfig(
        num_blocks=16, page_size=32, max_batch_tokens=64, per_request_processors=True
    )
    return model.init_continuous_batching(generation, batching)


def run(manager: Any, requests: Sequence[tuple[list[int], dict[str, Any]]]) -> list[Any]:
    manager.start()
    try:
        names = [manager.add_request(prompt, **arguments) for prompt, arguments in requests]
        results: dict[str, Any] = {}
        while len(results) < len(names):
            result = manager.get_result(timeout=20)
            assert result is not None
            if result.is_finished() or result.error:
                results[result.request_id] = result
        return [results[name] for name in names]
    finally:
        manager.stop(block=True)


def test_each_request_has_its_own_arguments_or_none(model: Any) -> None:
    prompts = [[5, 6, 7], [8, 9], [5, 6, 7], [1, 2]]
    plain = run(manager_of(model), [(prompt, {}) for prompt in prompts])
    manager = manager_of(model)
    lpkit.export.continuous_batching(manager, Only)
    arguments: list[dict[str, Any]] = [{"only_token": 3}, {}, {"only_token": 7}, {"only_token": 3}]
    found = run(manager, list(zip(prompts, arguments, strict=True)))
    assert [result.generated_tokens for result in found] == [[3] * 5, plain[1].generated_tokens, [7] * 5, [3] * 5]


def test_requests_without_arguments_have_the_default(model: Any) -> None:
    manager = manager_of(model)
    lpkit.export.continuous_batching(manager, Only, token=4)
    found = run(manager, [([5, 6], {}), ([5, 6], {"only_token": 9})])
    assert [result.generated_tokens for result in found] == [[4] * 5, [9] * 5]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"only_token": "x"}, "only_token"), ({"only_token": VOCAB}, "outside the vocabulary"), ({"top": 1}, "Unknown")],
)
def test_a_request_with_wrong_arguments_fails_alone_with_the_reason(
    model: Any, arguments: dict[str, Any], reason: str
) -> None:
    manager = manager_of(model)
    lpkit.export.continuous_batching(manager, Only)
    wrong, right = run(manager, [([5, 6], arguments), ([5, 6], {"only_token": 9})])
    assert reason in wrong.error
    assert right.generated_tokens == [9] * 5


def test_the_sampling_stage_comes_after_the_temperature_and_before_top_k(model: Any) -> None:
    manager = manager_of(model, do_sample=True, temperature=0.5, top_k=3)
    lpkit.export.continuous_batching(manager, Hottest)
    lpkit.export.continuous_batching(manager, Only)
    names = [
        type(item).__name__.removeprefix("ContinuousBatching") for item in manager.logit_processor.logits_processor
    ]
    assert names == ["ContinuousProcessor", "TemperatureLogitsWarper", "ContinuousProcessor", "TopKLogitsWarper"]
    found = run(manager, [([5, 6], {"hottest_on": True, "temperature": 0.01}), ([5, 6], {"only_token": 9})])
    greedy = run(manager_of(model), [([5, 6], {})])
    assert [result.generated_tokens for result in found] == [greedy[0].generated_tokens, [9] * 5]


@pytest.mark.parametrize("cls", [Reads, OldClass, lpkit.bridge(OldClass, name="OldBridge")])
def test_a_rule_with_a_history_is_refused_with_the_reason(model: Any, cls: type[Any]) -> None:
    with pytest.raises(TypeError, match="shows processors the current token only"):
        lpkit.export.continuous_batching(manager_of(model), cls)


def test_a_bridge_that_declares_no_history_joins(model: Any) -> None:
    manager = manager_of(model)
    lpkit.export.continuous_batching(manager, lpkit.bridge(OldClass, history="none", name="OldBridge"))
    assert manager.logit_processor.tensors_required == 1


def test_processors_run_in_the_order_in_which_they_joined(model: Any) -> None:
    manager = manager_of(model, do_sample=True, temperature=0.5)
    for cls in (Only, Hottest, Other, Hotter):
        lpkit.export.continuous_batching(manager, cls)
    joined = [item for item in manager.logit_processor.logits_processor if hasattr(item, "_cls")]
    assert [item._cls for item in joined] == [Only, Other, Hottest, Hotter]


def test_a_manager_that_has_started_takes_no_more(model: Any) -> None:
    manager = manager_of(model)
    manager.start()
    try:
        with pytest.raises(RuntimeError, match="join before"):
            lpkit.export.continuous_batching(manager, Only)
    finally:
        manager.stop(block=True)


def test_what_is_remembered_of_arguments_is_bounded(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpkit.export.for_continuous_batching._REMEMBERED", 4)
    manager = manager_of(model)
    lpkit.export.continuous_batching(manager, Only)
    (rule,) = manager.logit_processor.logits_processor
    largest = 0
    for step in range(60):
        tokens = [(step + i) % VOCAB for i in range(2)]
        states = [SimpleNamespace(logit_processor_kwargs={"only_token": token}) for token in tokens]
        numbers = rule.prepare_tensor_args([SimpleNamespace(state=state) for state in states])
        assert rule(torch.zeros(2, VOCAB), numbers).argmax(1).tolist() == tokens
        largest = max(largest, len(rule._rows))
    assert largest <= 9
