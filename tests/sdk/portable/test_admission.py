"""A processor gets the right requests, and the right facts about them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import lpkit
import pytest
import torch
from lpkit.sampling_params import SamplingParams
from sdk_hosts import VOCAB, V1Host, new, params
from sdk_plugins import Add


class Arguments(dict[str, Any]):
    """Counts how often its keys are gone through."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        type(self).walks += 1
        return super().__iter__()


def test_a_requests_keys_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host, sampling = V1Host(Add), SamplingParams(extra_args=Arguments(add=1.0))
    monkeypatch.setattr(Arguments, "walks", 0)
    host.update(1, added=[new(0, sampling)])
    assert Arguments.walks == 1


def test_what_admit_sees() -> None:
    seen: list[lpkit.Request] = []

    class Look(Add):
        def admit(self, request: lpkit.Request) -> bool:
            seen.append(request)
            return True

    host = V1Host(Look, max_num_seqs=3)
    sampling = params(add=1.0)
    host.update(2, added=[new(0, sampling), new(1, params(add=2.0), prompt=None)])
    assert seen[0].sampling_params is sampling
    assert seen[0].params.add == 1.0
    assert [request.prompt_token_ids for request in seen] == [[5, 6, 7], None]
    assert {request.slot for request in seen} <= {0, 1, 2}
    assert len({request.slot for request in seen}) == 2


class Named(lpkit.LogitsProcessor):
    """Adds two parameters, one of them optional."""

    class Params(lpkit.Params):
        amount: float
        more: float | None = None
        many: list[int] = []

    amount = lpkit.column(torch.float32)
    more = lpkit.column(torch.float32, default=8.0)
    many = lpkit.ragged(torch.int64, limit=2)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits + (self.amount[rows] + self.more[rows]).unsqueeze(1)


def test_a_column_gets_the_parameter_of_its_name_and_keeps_its_default_for_none() -> None:
    host = V1Host(Named)
    host.update(2, added=[new(0, params(amount=1.0)), new(1, params(amount=2.0, more=0.5))])
    assert host.apply(torch.zeros(2, VOCAB))[:, 0].tolist() == [9.0, 2.5]


def test_an_override_writes_on_what_the_default_has_written() -> None:
    class Doubled(Named):
        def admit(self, request: lpkit.Request) -> bool:
            super().admit(request)
            self.more[request.slot] = 2 * request.params.amount
            return bool(request.params.amount < 3.0)

    host = V1Host(Doubled)
    host.update(2, added=[new(0, params(amount=1.0)), new(1, params(amount=3.0))])
    assert host.apply(torch.zeros(2, VOCAB))[:, 0].tolist() == [3.0, 0.0]


def test_a_value_that_a_column_does_not_take_declines_the_request_and_names_the_column(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = V1Host(Named)
    with caplog.at_level(logging.ERROR, logger="lpkit"):
        host.update(1, added=[new(0, params(amount=1.0, many=[1, 2, 3]))])
    assert not host.apply(torch.zeros(1, VOCAB)).any()
    assert "column many: 3 values; at most 2" in caplog.text


def test_a_column_without_a_parameter_of_its_name_is_refused_unless_the_class_has_an_admit() -> None:
    body = {"Params": Named.Params, "amuont": lpkit.column(torch.float32), "process": Named.process}
    with pytest.raises(TypeError, match=r"column 'amuont', and no parameter has this name; did you mean 'amount'\?"):
        type("Misspelt", (lpkit.LogitsProcessor,), body)
    type("Own", (lpkit.LogitsProcessor,), {**body, "admit": lambda self, request: True})


def test_an_admit_that_raises_declines_that_request_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Fragile(Add):
        def admit(self, request: lpkit.Request) -> bool:
            if request.params.add == 13.0:
                raise RuntimeError("unlucky")
            return super().admit(request)

    host = V1Host(Fragile)
    with caplog.at_level(logging.ERROR, logger="lpkit"):
        host.update(2, added=[new(0, params(add=13.0)), new(1, params(add=1.0))])
    assert host.apply(torch.zeros(2, VOCAB))[:, 0].tolist() == [0, 1]
    assert "Fragile declined a request" in caplog.text
    assert "unlucky" in caplog.text


def test_parameters_that_slipped_past_validation_decline_the_request(caplog: pytest.LogCaptureFixture) -> None:
    host = V1Host(Add)
    with caplog.at_level(logging.WARNING, logger="lpkit"):
        host.update(1, added=[new(0, params(add="much"))])
    logits = torch.zeros(1, VOCAB)
    assert host.apply(logits) is logits
    assert "Add declined a request: add: Input should be a valid number" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("sent", [{"my_one": VOCAB}, {"my_many": [1, VOCAB]}, {"my_named": {"a": VOCAB}}])
def test_a_token_id_beyond_the_vocabulary_is_declined_by_name(
    sent: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Tokens(lpkit.LogitsProcessor):
        class Params(lpkit.Params, prefix="my_"):
            one: lpkit.TokenId | None = None
            many: list[lpkit.TokenId] = []
            named: dict[str, lpkit.TokenId] = {}

        def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
            return logits + 1

    host = V1Host(Tokens)
    good = params(my_one=VOCAB - 1, my_many=[0], my_named={"a": 3})
    with caplog.at_level(logging.WARNING, logger="lpkit"):
        host.update(2, added=[new(0, params(**sent)), new(1, good)])
    assert host.apply(torch.zeros(2, VOCAB))[:, 0].tolist() == [0, 1]
    assert f"{next(iter(sent))}: token id 32 is outside the vocabulary of 32" in caplog.text


def test_without_params_every_request_is_asked() -> None:
    class Everyone(lpkit.LogitsProcessor):
        def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
            return logits + 1

    host = V1Host(Everyone)
    host.update(1, added=[new(0, params())])
    assert host.apply(torch.zeros(1, VOCAB))[0, 0] == 1


def test_validate_params_needs_no_instance_and_only_raises_value_errors() -> None:
    Add.validate_params(params())
    Add.validate_params(params(add=1))
    with pytest.raises(ValueError, match="add: "):
        Add.validate_params(params(add=True))
