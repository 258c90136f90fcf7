"""A scaffolded plugin behind ``vllm serve``, whose engine is an ``AsyncLLM``, on both runners.

The server listens on loopback and is asked the way its users ask: by curl's ``vllm_xargs`` and by the OpenAI client's
``extra_body``. Its plugin is the one ``lpkit new`` writes, whose README shows the very commands that are run here.
Every reply is greedy, so what each request must say follows from what the model says in an engine without the plugin.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine.tiny import EngineSettings
from serving import COMPLETIONS, CURL_HEADER, EOS, VOCAB, WORDS, Made, Server, make

pytestmark = pytest.mark.engine

Tokens = list[int]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("online"))


@pytest.fixture(scope="module")
def servers(made: Made, runners: tuple[str, ...]) -> Iterator[dict[str, Server]]:
    """One on each runner that loads processors, started side by side; V2's knows the vocabulary."""
    with ExitStack() as stack:
        started = {}
        for runner in runners:
            told = ["--middleware", "lpkit.front_end.KnowsVocabulary"] if runner == "v2" else []
            started[runner] = Server(runner, made, told)
            stack.callback(started[runner].close)
        for server in started.values():
            server.wait()
        yield started


@pytest.fixture(params=["v1", "v2"])
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    return servers[request.param]


# What the requests must say

# Far more than logits differ by: from the second token on, the raised token wins.
SURE = 100.0
# Each prompt goes with the arguments below it; None: the request gives none.
PROMPTS = ("w9 w31 w300", "w17", "w40 w41 w42 w43 w44 w45", "w294 w436", "w133")
ARGUMENTS: tuple[dict[str, Any] | None, ...] = (
    {"wrap_up_token": 7, "wrap_up_step": SURE},
    None,
    {"wrap_up_token": 0, "wrap_up_step": SURE},
    {"wrap_up_token": 300, "wrap_up_step": SURE},
    {"wrap_up_token": 8, "wrap_up_step": SURE},
)
TOGETHER = list(zip(PROMPTS, ARGUMENTS, strict=True))
# Tokens per reply, by runner: long enough to overlap; Triton's interpreter makes V2 slow.
LENGTH = {"v1": 100, "v2": 20}


def numbers(text: str) -> Tokens:
    return [WORDS[word] for word in text.split()]


@pytest.fixture(scope="module")
def plain(engines: Callable[..., Any], made: Made) -> dict[str, Tokens]:
    """The model's answer to each prompt in an engine without plugins."""
    engine = engines(EngineSettings("v1", extra={"model": str(made.home / "MODEL"), "skip_tokenizer_init": True}))
    asks = [Ask(prompt, tuple(numbers(prompt)), {"max_tokens": 100, "temperature": 0.0}) for prompt in PROMPTS]
    return {name: answer.token_ids for name, answer in engine.generate(asks).items()}


def must_say(plain: Tokens, arguments: dict[str, Any] | None, length: int) -> Tokens:
    if arguments is None:
        return plain[:length]
    return (plain[:1] + [arguments["wrap_up_token"]] * length)[:length]


def body(prompt: str, arguments: dict[str, Any] | None, length: int) -> str:
    wanted = {"model": "MODEL", "prompt": prompt, "max_tokens": length, "return_token_ids": True}
    return json.dumps(wanted | ({} if arguments is None else {"vllm_xargs": arguments}))


def to(server: Server) -> dict[str, Any]:
    return {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}


def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(**to(server), http_client=httpx.Client(trust_env=False))  # no proxy on the way to loopback


# The server


def test_the_server_runs_on_the_runner_it_was_asked_for(server: Server) -> None:
    assert ("Using V2 Model Runner" in server.log) is (server.runner == "v2")


@pytest.mark.parametrize(("prompt", "arguments"), TOGETHER)
def test_curl_turns_the_plugin_on_with_vllm_xargs_and_without_them_it_is_off(
    server: Server, plain: dict[str, Tokens], prompt: str, arguments: dict[str, Any] | None
) -> None:
    status, reply = server.curl(body(prompt, arguments, 16))
    assert status == 200, reply
    choice = reply["choices"][0]
    assert choice["prompt_token_ids"] == numbers(prompt)
    assert choice["token_ids"] == must_say(plain[prompt], arguments, 16)
    assert numbers(choice["text"]) == [token for token in choice["token_ids"] if token > EOS]


@pytest.mark.parametrize("stream", [False, True], ids=["at once", "stream"])
def test_the_openai_client_turns_it_on_with_extra_body(server: Server, plain: dict[str, Tokens], stream: bool) -> None:
    length = LENGTH[server.runner]
    prompt, arguments = TOGETHER[0]
    with client(server) as openai_client:
        reply = openai_client.completions.create(
            model="MODEL", prompt=prompt, max_tokens=length, stream=stream, extra_body={"vllm_xargs": arguments}
        )
        texts = [chunk.choices[0].text for chunk in reply] if stream else [reply.choices[0].text]
        chat = openai_client.chat.completions.create(
            model="MODEL",
            messages=[{"role": "user", "content": prompt}],
            max_tokens=length,
            extra_body={"vllm_xargs": arguments},
        )
    assert (len(texts) > 1) is stream
    assert numbers("".join(texts)) == must_say(plain[prompt], arguments, length)
    assert numbers(chat.choices[0].message.content or "") == must_say(plain[prompt], arguments, length)


def test_requests_in_one_batch_each_get_their_own_arguments(server: Server, plain: dict[str, Tokens]) -> None:
    length = LENGTH[server.runner]

    async def ask(client: openai.AsyncOpenAI, prompt: str, arguments: dict[str, Any] | None) -> Tokens:
        extra = {"return_token_ids": True} | ({} if arguments is None else {"vllm_xargs": arguments})
        reply = await client.completions.create(model="MODEL", prompt=prompt, max_tokens=length, extra_body=extra)
        return list(reply.choices[0].token_ids)  # type: ignore[attr-defined]

    async def ask_all() -> list[Tokens]:
        http = httpx.AsyncClient(trust_env=False)
        async with openai.AsyncOpenAI(**to(server), http_client=http) as client:
            return await asyncio.gather(*(ask(client, *request) for request in TOGETHER))

    steps = server.metric("vllm:iteration_tokens_total_count")
    said = asyncio.run(ask_all())
    steps = server.metric("vllm:iteration_tokens_total_count") - steps
    assert said == [must_say(plain[prompt], arguments, length) for prompt, arguments in TOGETHER]
    # One after the other they would have taken a step per token; how many are shared is the scheduler's business.
    assert steps < sum(map(len, said))


# Each with the name that the refusal must give.
INVALID: tuple[tuple[dict[str, Any], str], ...] = (
    ({"wrap_up_token": -1}, "wrap_up_token"),
    ({"wrap_up_token": 1.5}, "wrap_up_token"),
    ({"wrap_up_token": 2**63}, "wrap_up_token"),
    ({"wrap_up_token": 7, "wrap_up_step": "fast"}, "wrap_up_step"),
    ({"wrap_up_token": 7, "wrap_up_step": 0}, "wrap_up_step"),
    ({"wrap_up_token": [7]}, "wrap_up_token"),
    ({"wrap_up_token": None}, "wrap_up_token"),  # this one by vLLM, which takes no null
    ({"wrap_up_step": 3}, "wrap_up_step"),
    ({"wrap_up_token": 7, "wrap_up_stepp": 3}, "wrap_up_stepp"),
)


def test_invalid_arguments_are_answered_with_400_and_the_name_and_serving_goes_on(
    server: Server, plain: dict[str, Tokens]
) -> None:
    for arguments, name in INVALID:
        status, reply = server.curl(body(PROMPTS[0], arguments, 4))
        assert status == 400, (arguments, reply)
        assert name in reply["error"]["message"], (arguments, reply)
    with client(server) as openai_client, pytest.raises(openai.BadRequestError, match="wrap_up_token: Input should be"):
        openai_client.completions.create(model="MODEL", prompt="w9", extra_body={"vllm_xargs": INVALID[0][0]})
    status, reply = server.curl(body(*TOGETHER[0], 16))
    assert status == 200
    assert reply["choices"][0]["token_ids"] == must_say(plain[PROMPTS[0]], ARGUMENTS[0], 16)


def test_a_token_that_the_model_lacks_is_refused_by_a_server_that_was_told_and_else_logged(
    server: Server, plain: dict[str, Tokens]
) -> None:
    """vLLM validates arguments without saying for which model: without the middleware, it is too late for a 400."""
    status, reply = server.curl(body(PROMPTS[0], {"wrap_up_token": VOCAB, "wrap_up_step": SURE}, 16))
    said = f"wrap_up_token: token id {VOCAB} is outside the vocabulary of {VOCAB}"
    if server.runner == "v2":
        assert status == 400
        assert said in reply["error"]["message"]
    else:
        assert status == 200
        assert reply["choices"][0]["token_ids"] == plain[PROMPTS[0]][:16]
        assert said in server.log
    status, reply = server.curl(body(*TOGETHER[0], 16))
    assert reply["choices"][0]["token_ids"] == must_say(plain[PROMPTS[0]], ARGUMENTS[0], 16)


# Documents of rules


def with_rules(steps: Any) -> dict[str, Any]:
    return {"rules": steps if isinstance(steps, str) else json.dumps(steps)}


def test_words_of_a_document_are_the_models_tokens(server: Server, plain: dict[str, Tokens]) -> None:
    prompt = PROMPTS[1]
    first = plain[prompt][0]
    steps = [
        {"rule": "ban", "phrases": [f"w{first}"], "when": {"until": 1}},
        {"rule": "bias", "ids": [9], "values": [99]},
    ]
    status, reply = server.curl(body(prompt, with_rules(steps), 16))
    assert status == 200, reply
    assert reply["choices"][0]["token_ids"] == [9] * 16
    status, reply = server.curl(body(prompt, with_rules(steps[:1]), 16))
    assert first != reply["choices"][0]["token_ids"][0]


def test_streams_with_different_documents_say_what_each_says_alone(server: Server) -> None:
    documents = [
        [{"rule": "allow", "ids": list(range(n, n + 40))}, {"rule": "no_repeat_ngram", "size": 1 + n % 2}]
        if n % 3
        else [{"rule": "no_repeat_ngram", "size": 1, "when": {"every": 2}}, {"rule": "penalties", "repetition": 1.5}]
        for n in range(3, 27 if server.runner == "v1" else 9)
    ]

    async def ask(client: openai.AsyncOpenAI, steps: Any) -> Tokens:
        extra = {"return_token_ids": True, "vllm_xargs": with_rules(steps)}
        reply = await client.completions.create(model="MODEL", prompt=PROMPTS[0], max_tokens=20, extra_body=extra)
        return list(reply.choices[0].token_ids)  # type: ignore[attr-defined]

    async def ask_all(at_once: bool) -> list[Tokens]:
        http = httpx.AsyncClient(trust_env=False, timeout=300.0)
        async with openai.AsyncOpenAI(**to(server), http_client=http) as client:
            if at_once:
                return await asyncio.gather(*(ask(client, steps) for steps in documents))
            return [await ask(client, steps) for steps in documents]

    alone = asyncio.run(ask_all(False))
    assert asyncio.run(ask_all(True)) == alone
    assert len({tuple(tokens) for tokens in alone}) > len(alone) // 2


REFUSED_DOCUMENTS = {
    '[{"rule": "min_q"}]': "rules/0/rule: 'min_q' is no rule here; did you mean 'min_p'",
    '[{"rule": "min_p", "threshold": 7}]': "rules/0/threshold",
    '[{"rule": "ban", "phrases": ["w5"], "when": {"form": 3}}]': "rules/0/when/form: unknown; did you mean 'from'",
    '{"preset": {"mirostat": 2}}': "rules/preset/mirostat",
    "creative": "neither JSON nor the name of a document",
    "[" * 50_000: "rules/: not JSON",
    json.dumps([{"rule": "ban", "phrases": [7] * 30_000}]): "bytes; at most 65536",
    json.dumps([{"rule": "min_p", "threshold": 0.1}] * 17): "17 steps; at most 16",
    '[{"rule": "\\ud83d"}]': "rules/0/rule: ",
    '[{"rule": "__class__"}]': "rules/0/rule: '__class__' is no rule here",
    '[{"rule": "min_p", "threshold": NaN}]': "NaN is not a JSON number",
    '[{"rule": "bias", "ids": [9223372036854775808], "values": [1]}]': "rules/0/ids",
}


def test_wrong_documents_are_answered_with_400_their_pointers_and_nothing_long_and_change_no_other_reply(
    server: Server, plain: dict[str, Tokens]
) -> None:
    async def send(http: httpx.AsyncClient, arguments: dict[str, Any] | None) -> httpx.Response:
        return await http.post(f"{server.url}{COMPLETIONS}", content=body(PROMPTS[0], arguments, 4))

    async def all_of_them() -> list[httpx.Response]:
        header = dict([CURL_HEADER.split(": ")])
        asked = [part for document in REFUSED_DOCUMENTS for part in (with_rules(document), None)]
        async with httpx.AsyncClient(trust_env=False, timeout=300.0, headers=header) as http:
            return await asyncio.gather(*(send(http, arguments) for arguments in asked))

    replies = asyncio.run(all_of_them())
    for (document, said), reply in zip(REFUSED_DOCUMENTS.items(), replies[::2], strict=True):
        assert reply.status_code == 400, document[:100]
        message = reply.json()["error"]["message"]
        assert said in message and len(message) < 500, message
    for reply in replies[1::2]:
        assert reply.json()["choices"][0]["token_ids"] == plain[PROMPTS[0]][:4]


# What the plugin's README says


@pytest.fixture(scope="module")
def serving(made: Made) -> list[str]:
    """The code blocks of the README's section on serving."""
    readme = (made.project / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Serve\n")[2].partition("\n## ")[0]
    return re.findall(r"^```\w*\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)


def test_the_readme_starts_the_server_as_it_was_started_here(serving: list[str], servers: dict[str, Server]) -> None:
    command = shlex.split(serving[0])
    assert command == ["vllm", "serve", "MODEL"]
    assert servers["v1"].command[:3] == [str(Path(sys.executable).with_name("vllm")), *command[1:]]


def test_the_readmes_curl_command_ends_a_long_reply_softly(serving: list[str], servers: dict[str, Server]) -> None:
    curl, url, header, value, data, text = shlex.split(serving[1].replace("\\\n", ""))
    assert (curl, header, value, data) == ("curl", "-H", CURL_HEADER, "-d")
    assert url == "http://localhost:8000" + COMPLETIONS
    status, reply = servers["v1"].curl(text)
    assert status == 200, reply
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert 100 < reply["usage"]["completion_tokens"] < 400
    asked = json.loads(text)
    del asked["vllm_xargs"]
    status, reply = servers["v1"].curl(json.dumps(asked))
    assert (status, reply["choices"][0]["finish_reason"]) == (200, "length")


def test_the_readmes_openai_call_ends_a_long_reply_softly(serving: list[str], servers: dict[str, Server]) -> None:
    with client(servers["v1"]) as openai_client:
        reply = eval(serving[2].strip(), {"client": openai_client})
    assert reply.choices[0].finish_reason == "stop"
    assert 100 < reply.usage.completion_tokens < 400
