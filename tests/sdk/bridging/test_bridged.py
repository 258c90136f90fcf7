"""A V1-only class on V2: its calls, its rows, and that others' rows stay as they are."""

from __future__ import annotations

import logging
from typing import Any

import lpkit
import pytest
import torch
from lpkit import v1
from lpkit.sampling_params import SamplingParams
from sdk_hosts import V2Host, config, logits_of, params

ROWS = tuple[list[int], list[int]]


class Recorder(v1.LogitsProcessor):
    """Writes prompt length, output length and last output token over the first logits of requests with ``mark``."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.device, self.pinned = device, is_pin_memory
        self.updates: list[v1.BatchUpdate | None] = []
        self.rows: dict[int, Any] = {}
        self.shown: list[list[ROWS]] = []

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        if (sampling_params.extra_args or {}).get("mark", 1) != 1:
            raise ValueError("mark must be 1")

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        self.updates.append(batch_update)
        v1.process_dict_updates(self.rows, batch_update, lambda *request: request)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        assert sorted(self.rows) == list(range(len(logits)))
        self.shown.append([(list(self.rows[row][1]), list(self.rows[row][2])) for row in sorted(self.rows)])
        for row, (request, prompt, output) in self.rows.items():
            if (request.extra_args or {}).get("mark"):
                logits[row, :3] = torch.tensor([len(prompt), len(output), output[-1] if output else -5.0])
        return logits


class Bridge(lpkit.Bridged):
    wraps = Recorder


class Keyed(lpkit.Bridged):
    wraps = Recorder
    keys = ("mark",)


class Half(Recorder):
    """Claims invariance: keeps what is above the mean."""

    def is_argmax_invariant(self) -> bool:
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.where(logits < logits.mean(-1, keepdim=True), -torch.inf, logits)


class LateBridge(lpkit.Bridged):
    wraps = Half


def inner(host: V2Host) -> Any:
    return host.processor._wrapped


class TestTheClass:
    def test_on_v1_the_engine_holds_an_instance_of_the_wrapped_class(self) -> None:
        processor = Bridge(config(), torch.device("cpu"), False)
        assert type(processor) is Recorder
        assert processor.pinned is False

    def test_on_v2_the_wrapped_class_is_constructed_with_the_engines_device(self) -> None:
        host = V2Host(Bridge)
        assert isinstance(host.processor, Bridge)
        assert (inner(host).device, inner(host).pinned) == (torch.device("cpu"), False)

    def test_validation_is_the_wrapped_classs(self) -> None:
        Bridge.validate_params(params(mark=1))
        with pytest.raises(ValueError, match="mark must be 1"):
            Bridge.validate_params(params(mark=2))

    def test_the_claim_is_the_wrapped_classs(self) -> None:
        assert V2Host(LateBridge).processor.is_argmax_invariant()
        assert not V2Host(Bridge).processor.is_argmax_invariant()

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"wraps": print}, "wraps a V1 class, not <built-in"),
            ({"wraps": v1.LogitsProcessor}, "is abstract: it has no __init__, apply"),
            ({"wraps": Recorder, "keys": "mark"}, "must be a tuple of extra_args keys"),
            ({"wraps": Recorder, "history": "token"}, "did you mean 'tokens'"),
            ({"wraps": Recorder, "apply": None}, "defines apply: a bridge has only"),
        ],
    )
    def test_what_cannot_work_is_refused_when_it_is_written(self, body: dict[str, Any], message: str) -> None:
        with pytest.raises(TypeError, match=message):
            type("Made", (lpkit.Bridged,), body)

    def test_without_a_class_to_wrap_it_cannot_be_constructed(self) -> None:
        with pytest.raises(TypeError, match="names no V1 class: set wraps"):
            V2Host(type("Empty", (lpkit.Bridged,), {}))

    def test_the_warning_names_the_limits_once(self, caplog: pytest.LogCaptureFixture) -> None:
        class Fresh(lpkit.Bridged):
            wraps = Recorder

        class Drafting(lpkit.Bridged):
            wraps = Half
            keys = ("mark",)
            history = "none"

        with caplog.at_level(logging.WARNING, logger="lpkit"):
            V2Host(Fresh), V2Host(Fresh)
            states = V2Host(Bridge).states
            caplog.clear()
            V2Host(Fresh)
            assert not caplog.records
            Drafting(config(speculative=True), states)
        (text,) = [record.getMessage() for record in caplog.records]
        for needed in ("Drafting", "before the temperature", "must not be read", "order of rows", "every draft"):
            assert needed in text
        assert "shown every request" not in text


class TestRows:
    def test_warm_up_requests_are_not_shown(self) -> None:
        host = V2Host(Bridge)
        host.add(2, params(mark=1), [])
        host.total.gpu[2] = 1
        logits = logits_of(1)
        assert host.apply(logits, host.context([2])) is logits

    def test_a_call_without_own_rows_touches_nothing(self) -> None:
        host = V2Host(Keyed)
        host.add(0, params(), [1])
        logits = logits_of(1)
        assert host.apply(logits, host.context([0])) is logits
        assert inner(host).updates == []

    def test_a_predicate_of_the_authors_own_that_raises_declines(self, caplog: pytest.LogCaptureFixture) -> None:
        class Picky(lpkit.Bridged):
            wraps = Recorder

            @classmethod
            def concerns(cls, sampling_params: SamplingParams) -> bool:
                return bool(sampling_params.extra_args["mark"])  # type: ignore[index]

        host = V2Host(Picky)
        assert host.add(0, params(mark=1), [1])
        with caplog.at_level(logging.ERROR, logger="lpkit"):
            assert not host.add(1, params(), [1])
        assert "the processor is off for this request" in caplog.text

    def test_a_request_that_validation_refuses_is_declined_where_the_front_end_did_not_ask(self) -> None:
        host = V2Host(Bridge)
        assert host.add(0, params(mark=1), [1])
        assert not host.add(1, params(mark=[None]), [1])

    def test_lengths_alone_and_nothing_at_all(self) -> None:
        class Long(lpkit.Bridged):
            wraps = Recorder
            history = "length"

        class Blind(lpkit.Bridged):
            wraps = Recorder
            history = "none"

        host = V2Host(Long)
        host.add(0, params(mark=1), [1, 2], [9])
        host.apply(logits_of(1), host.context([0]))
        host.commit(0, 9)
        host.apply(logits_of(1), host.context([0]))
        assert inner(host).shown == [[([-1, -1], [-1])], [([-1, -1], [-1, -1])]]
        host = V2Host(Blind)
        host.add(0, params(mark=1), [1, 2], [9])
        with pytest.raises(RuntimeError, match="history = 'none' is declared, but token ids were read"):
            host.apply(logits_of(1), host.context([0]))


class TestSamplingStage:
    def test_it_sees_logits_divided_by_the_temperature_and_greedy_requests_are_left_alone(self) -> None:
        host = V2Host(LateBridge)
        temperatures = (0.5, 0.0, 1.0, 1.7)
        assert [host.add(i, params(temperature=t), [1]) for i, t in enumerate(temperatures)] == [
            True,
            False,
            True,
            True,
        ]
        logits = logits_of(4)
        result = host.apply(logits.clone(), host.context([0, 1, 2, 3]))
        assert torch.equal(result[1], logits[1])
        for row, temperature in ((0, 0.5), (2, 1.0), (3, 1.7)):
            scaled = logits[row] / temperature
            gone = scaled < scaled.mean()
            assert torch.equal(result[row] == -torch.inf, gone)
            # What is kept has not gone through x / t * t.
            assert torch.equal(result[row][~gone], logits[row][~gone])

    def test_what_it_changes_is_multiplied_back(self) -> None:
        class Doubled(Half):
            def apply(self, logits: torch.Tensor) -> torch.Tensor:
                return logits.mul_(2.0)

        class Late(lpkit.Bridged):
            wraps = Doubled

        host = V2Host(Late)
        host.add(0, params(temperature=0.5), [1])
        logits = logits_of(1)
        torch.testing.assert_close(host.apply(logits.clone(), host.context([0])), logits * 2)


class TestDrafts:
    def test_accepted_drafts_bring_the_request_back_as_resumed(self) -> None:
        host = V2Host(Bridge)
        host.add(0, params(mark=1), [1])
        host.apply(logits_of(3), host.context([0], drafts={0: [6, 7]}))
        for token in (6, 7, 8):
            host.commit(0, token)
        host.apply(logits_of(2), host.context([0], drafts={0: [9]}, slack=2))
        assert inner(host).shown[-1] == [([1], [6, 7, 8]), ([1], [6, 7, 8, 9])]
        assert sorted(len(item[3]) for item in inner(host).updates[-1].added) == [3, 4]

    def test_more_rows_than_requests_fit_are_shown_in_turns(self) -> None:
        host = V2Host(Bridge, max_num_reqs=2)
        for slot in (0, 1):
            host.add(slot, params(mark=1), [1] * (slot + 1))
        result = host.apply(logits_of(6), host.context([0, 1], drafts={0: [6, 7], 1: [8, 9]}))
        assert [len(rows) for rows in inner(host).shown] == [2, 2, 2]
        assert result[:, :3].tolist() == [[1, 0, -5], [1, 1, 6], [1, 2, 7], [2, 0, -5], [2, 1, 8], [2, 2, 9]]

    def test_where_histories_are_not_read_rows_stay(self) -> None:
        class Steady(Recorder):
            def apply(self, logits: torch.Tensor) -> torch.Tensor:
                return logits + 1

        class Blind(lpkit.Bridged):
            wraps = Steady
            history = "none"

        host = V2Host(Blind)
        host.add(0, params(), [1])
        for _ in range(2):
            logits = logits_of(3)
            assert torch.equal(host.apply(logits.clone(), host.context([0], drafts={0: [6, 7]})), logits + 1)
        assert inner(host).updates[1] is None
