"""A server that was told the vocabulary refuses token ids outside it; any other one leaves them to the engine."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import lpkit
import pytest
from lpkit.front_end import KnowsVocabulary
from lpkit.interfaces.config import make_config
from lpkit.portable.token_ids import known_vocabulary
from lpkit.sampling_params import SamplingParams


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    yield
    known_vocabulary.clear()


def served(*scopes: Any) -> list[Any]:
    """Send these through the middleware, and return what reaches the server."""
    reached: list[Any] = []

    async def server(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    async def send_all() -> None:
        middleware = KnowsVocabulary(server)
        for scope in scopes:
            await middleware(scope, None, None)

    asyncio.run(send_all())
    return reached


def app(config: Any) -> Any:
    return {"type": "http", "app": SimpleNamespace(state=SimpleNamespace(vllm_config=config))}


def refuses(extra_args: dict[str, Any]) -> str:
    """Return the reason for which a new class refuses a request, or ""."""

    class Tokens(lpkit.LogitsProcessor):
        class Params(lpkit.Params, prefix="t_"):
            token: lpkit.TokenId
            more: list[lpkit.TokenId] = []
            by: dict[lpkit.TokenId, float] = {}
            number: int = 0

        def admit(self, request: lpkit.Request[Params]) -> bool:
            return True

        def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
            return

    try:
        Tokens.validate_params(SamplingParams(extra_args=extra_args))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("extra_args", "said"),
    [
        ({"t_token": 127, "t_more": [0, 127], "t_by": {"127": 500.0}, "t_number": 500}, ""),
        ({"t_token": 128}, "t_token: token id 128 is outside the vocabulary of 128"),
        ({"t_token": 1, "t_more": [1, 200]}, "t_more: token id 200 is outside the vocabulary of 128"),
        ({"t_token": 1, "t_by": {"300": 1.0}}, "t_by: token id 300 is outside the vocabulary of 128"),
    ],
)
def test_a_server_that_was_told_refuses_ids_outside_the_vocabulary(extra_args: dict[str, Any], said: str) -> None:
    assert refuses(extra_args) == ""  # not told yet
    http = app(make_config(vocab_size=128))
    assert served({"type": "lifespan"}, http, http) == [{"type": "lifespan"}, http, http]
    assert known_vocabulary == [128]
    assert refuses(extra_args) == said


@pytest.mark.parametrize("scope", [{"type": "http"}, app(None), app(SimpleNamespace())])
def test_a_server_whose_configuration_is_not_there_serves_as_before(scope: Any) -> None:
    assert served(scope) == [scope]
    assert refuses({"t_token": 10**6}) == ""
