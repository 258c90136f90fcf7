"""Request-level callables on both runners: what they are given, how they are counted, what they may return."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import lpkit
import pytest
import torch
from lpkit.history.on_host import HostHistories
from lpkit.portable.adapter import three_arguments
from lpkit.sampling_params import SamplingParams
from sdk_hosts import HOST_SYNCS, VOCAB, V1Host, V2Host, logits_of, params, recorded_ops

Seen = list[tuple[list[int] | None, list[int]]]


class Penalty(lpkit.AdapterLogitsProcessor):
    """Takes `cost` off every token of the output, once per occurrence."""

    class Params(lpkit.Params):
        cost: float

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        wanted = self.params(params)
        if wanted is None:
            return None

        def penalize(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            for token in output_ids:
                logits[token] -= wanted.cost
            return logits

        return penalize


def adapter(call: Any, **attributes: Any) -> type:
    """An adapter that gives `call` to requests with `use`."""

    def make(self: Any, params: SamplingParams) -> Any:
        return call if (params.extra_args or {}).get("use") else None

    return type("Made", (lpkit.AdapterLogitsProcessor,), {"new_req_logits_processor": make, **attributes})


def on_v1(cls: type, output: list[int], prompt: list[int] | None = None) -> torch.Tensor:
    host = V1Host(cls)
    host.update(1, added=[(0, params(use=1), prompt, output)])
    return host.apply(torch.zeros(1, VOCAB))


def on_v2(cls: type, output: list[int], prompt: list[int]) -> torch.Tensor:
    host = V2Host(cls)
    host.add(3, params(use=1), prompt, output)
    return host.apply(torch.zeros(1, VOCAB), host.context([3]))


class Two:
    def __call__(self, output_ids: Any, logits: Any) -> Any:
        return output_ids, logits

    def three(self, prompt_ids: Any, output_ids: Any, logits: Any) -> Any:
        return prompt_ids, output_ids, logits


class TestArguments:
    def two(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        return logits + len(output_ids)

    def three(self, prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        return logits + 10 * len(prompt_ids) + len(output_ids)

    @pytest.mark.parametrize("run", [on_v1, on_v2])
    def test_two_and_three_arguments(self, run: Any) -> None:
        assert run(adapter(self.two), [1, 2], [4, 5, 6])[0, 0] == 2
        assert run(adapter(self.three), [1, 2], [4, 5, 6])[0, 0] == 32

    def test_lists_of_ids_in_the_order_of_generation(self) -> None:
        seen: Seen = []

        def call(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            seen.append((list(prompt_ids), list(output_ids)))
            return logits

        on_v1(adapter(call), [3, 1, 2], [9, 8])
        on_v2(adapter(call), [3, 1, 2], [9, 8])
        assert seen == [([9, 8], [3, 1, 2])] * 2

    def test_without_prompt_ids_the_prompt_is_empty(self) -> None:
        assert on_v1(adapter(self.three), [1])[0, 0] == 1

    @pytest.mark.parametrize(
        ("call", "given"),
        [
            (lambda output_ids, logits: (output_ids, logits), "ol"),
            (lambda output_ids, logits, *, scale=1: (output_ids, logits), "ol"),
            (lambda output_ids, logits, **options: (output_ids, logits), "ol"),
            (lambda output_ids, logits, /: (output_ids, logits), "ol"),
            (functools.partial(lambda scale, output_ids, logits: (output_ids, logits), 2), "ol"),
            (functools.partial(lambda output_ids, logits, scale: (output_ids, logits), scale=2), "ol"),
            (functools.partial(lambda output_ids, logits, *, scale: (output_ids, logits), scale=2), "ol"),
            (Two(), "ol"),
            (lambda prompt_ids, output_ids, logits: (prompt_ids, output_ids, logits), "pol"),
            (lambda prompt_ids, output_ids, logits, *, scale=1: (prompt_ids, output_ids, logits), "pol"),
            (
                functools.partial(lambda scale, prompt_ids, output_ids, logits: (prompt_ids, output_ids, logits), 2),
                "pol",
            ),
            (Two().three, "pol"),
        ],
    )
    def test_two_positional_arguments_are_output_and_logits_and_three_the_prompt_too(
        self, call: Any, given: str
    ) -> None:
        assert three_arguments(call)("p", "o", "l") == tuple(given)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda logits: logits, "takes 1 positional"),
            (lambda a, b, c, d: d, "takes 4 positional"),
            (lambda output_ids, logits, *rest: logits, r"it has \*rest"),
            (torch.nn.Identity(), r"it has \*args"),
            (lambda output_ids, logits, *, scale: logits, "keyword 'scale'; bind it with functools.partial"),
        ],
    )
    def test_other_shapes_are_refused_at_admission_and_the_engine_lives(
        self, call: Any, message: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(TypeError, match=message):
            three_arguments(call)
        with caplog.at_level(logging.ERROR, logger="lpkit"):
            assert not on_v1(adapter(call), [1], [1]).any()
            assert not on_v2(adapter(call), [1], [1]).any()
        assert len(caplog.records) == 2

    @pytest.mark.parametrize("run", [on_v1, on_v2])
    def test_declared_lengths_are_enough_for_callables_that_count(self, run: Any) -> None:
        assert run(adapter(self.three, history="length"), [1, 2], [4, 5, 6])[0, 0] == 32
        assert run(adapter(lambda output_ids, logits: logits + 1, history="none"), [1], [4])[0, 0] == 1


class TestRows:
    @pytest.mark.parametrize("run", [on_v1, on_v2])
    def test_a_new_row_may_be_returned(self, run: Any) -> None:
        def fresh(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            return torch.full_like(logits, 7.0)

        assert (run(adapter(fresh), [1], [1]) == 7).all()

    def test_on_v2_a_step_fetches_the_tokens_that_are_new_and_no_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fetched: list[int] = []
        copy = HostHistories._copy

        def watched(self: HostHistories, missing: Any, more: list[torch.Tensor]) -> list[int]:
            fetched.append(missing.shape[1])
            return copy(self, missing, more)

        monkeypatch.setattr(HostHistories, "_copy", watched)
        host = V2Host(Penalty)
        host.add(0, params(cost=1.0), [1] * 20)
        host.add(1, params(cost=1.0), [1] * 10, [3] * 5)
        for token in (3, 4, 5):
            host.apply(logits_of(2), host.context([0, 1]))
            host.commit(0, token)
            host.commit(1, token)
        assert fetched == [35, 2, 2]

    def test_callables_of_requests_that_left_are_dropped(self) -> None:
        host = V1Host(Penalty)
        host.update(2, added=[(i, params(cost=1.0), [1], []) for i in range(2)])
        host.update(1, removed=[1])
        assert len(host.processor._calls) == 1
        on_two = V2Host(Penalty)
        on_two.add(0, params(cost=1.0), [1])
        on_two.add(0, params(), [1])
        assert not on_two.processor._calls


def test_params_are_parsed_for_the_author_and_validated_for_the_engine() -> None:
    assert Penalty.params(params()) is None
    found = Penalty.params(params(cost=2))
    assert found.cost == 2.0
    with pytest.raises(ValueError, match="cost: "):
        Penalty.validate_params(params(cost="x"))


def test_at_the_sampling_stage_greedy_requests_are_not_concerned() -> None:
    class Late(Penalty):
        stage = "sampling"

    host = V1Host(Late)
    assert host.processor.is_argmax_invariant()
    host.update(1, added=[(0, params(temperature=0.0, cost=1.0), [1], [2])])
    logits = logits_of(1)
    assert host.apply(logits) is logits


class Adds(lpkit.AdapterLogitsProcessor):
    history = "none"

    class Params(lpkit.Params):
        add: float

    def new_req_logits_processor(self, sampling_params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        own = self.params(sampling_params)
        return None if own is None else lambda output_ids, logits: logits.add_(own.add)


def test_on_v2_the_host_knows_the_rows_unless_there_are_drafts() -> None:
    host = V2Host(Adds)
    for slot in (4, 1, 2):
        host.add(slot, params(add=float(slot)) if slot != 1 else params(), [1, 2])
    context, logits = host.context([1, 4, 2]), torch.zeros(3, VOCAB)
    with recorded_ops() as names:
        host.apply(logits, context)
    assert logits[:, 0].tolist() == [0, 4, 2]
    assert not any(name in ("resolve_neg", "resolve_conj") or name in HOST_SYNCS for name in names)
    drafted = torch.zeros(5, VOCAB)
    host.apply(drafted, host.context([1, 4, 2], drafts={4: [7, 8]}))
    assert drafted[:, 0].tolist() == [0, 4, 4, 4, 2]
