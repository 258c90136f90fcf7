"""Readers of facts on a few lines. ``tests/engine/test_canary.py`` has them read a whole vLLM."""

from __future__ import annotations

import ast
import textwrap

import pytest
from vllm_canary.features import collected
from vllm_canary.readers import (
    BATCH,
    CONFIG,
    ENVS,
    INTERFACE,
    ONLINE,
    added_request,
    read_all,
    v2_processors,
    validated,
)
from vllm_canary.source import Source

SWITCH = 'x = {"VLLM_USE_V2_MODEL_RUNNER": lambda: bool(int(os.getenv("VLLM_USE_V2_MODEL_RUNNER", "0")))}'


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("entry_points(group='vllm.logits_processors'); return ['custom logits processors']",
         "none, passed or installed"),
        ("return ['custom logits processors']", "refuses passed, forgets installed"),
        ("return []", "forgets them"),
    ],
)  # fmt: skip
def test_what_v2_made_of_processors_before_it_ran_them(features: str, expected: str) -> None:
    config = f"class VllmConfig:\n    def _validate_v2_model_runner(self):\n        {features}\n"
    files = {CONFIG: config, ENVS: SWITCH}
    assert v2_processors(Source(files)) == expected


def test_an_older_prompt_may_be_missing_before_its_annotation_says_so() -> None:
    files = {
        INTERFACE: "AddedRequest = tuple[int, SamplingParams, list[int], list[int]]\n",
        BATCH: "class CachedRequestState:\n    prompt_token_ids: Optional[list[int]]\n",
    }
    assert added_request(Source(files)) == "index, params, prompt or None, output"
    assert added_request(Source({**files, BATCH: ""})) == "index, params, prompt, output"


def test_a_release_without_any_of_the_files_has_nothing() -> None:
    found = read_all(Source({}))
    values = {"-", "never", "none taken", "as set", "V1", ""}
    assert {name: value for name, value in found.items() if value not in values} == {}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("unsupported.append('a')", "a"),
        ("if self.x_config is not None and self.x_config.y: unsupported.append('a')", "a when y"),
        ("if self.x_config is not None and self.y: unsupported.append('a')", "a when x_config is not None and y"),
        ("if a or b:\n  if c: unsupported.append('a')", "a when (a or b) and c"),
        ("if a: unsupported.append('a')\nelse: unsupported.append('b')", "a when a; b when not a"),
        ("unsupported.append(f'a {self.x_config.y}')", "a {y}"),
        ("unsupported.extend(self._more())", "_more()"),
        ("return ['a', 'b']", "a; b"),
        ("'text'\nunsupported: list = []\nx = self.x_config\nreturn unsupported", "nothing"),
        ("unsupported = ['a']", "?"),
        ("unsupported += ['a']", "?"),
        ("unsupported.append(what)", "?"),
        ("unsupported.extend(['a'])", "?"),
        ("for what in self.x: unsupported.append(what)", "?"),
        ("return unsupported + self._more()", "?"),
    ],
)  # fmt: skip
def test_what_is_collected_as_unsupported(code: str, expected: str) -> None:
    (function,) = ast.parse(f"def collect(self):\n{textwrap.indent(code, '    ')}").body
    assert isinstance(function, ast.FunctionDef)
    assert collected(function) == expected


def test_online_validation_is_distinguished_from_offline() -> None:
    interface = {INTERFACE: "class LogitsProcessor:\n    def validate_params(cls, sampling_params): ...\n"}
    online = {**interface, ONLINE[0]: "validate_logits_processors_parameters(given, params)\n"}
    assert validated(Source(interface)) == "-"
    assert validated(Source(online)) == "online"
