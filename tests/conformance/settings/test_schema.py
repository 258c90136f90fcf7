"""The schema of ``[tool.lpkit]`` agrees with what reads it."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
from lpkit_conformance.errors import ProjectError
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.schema import tool_schema
from validate_pyproject.api import Validator
from validate_pyproject.errors import ValidationError
from validate_pyproject.plugins import PluginWrapper

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = sorted((ROOT / "reference_plugins").glob("*/pyproject.toml"))

RIGHT = [
    "",
    'hosts = ["v1"]\ncases = [{extra_args = {a = 1}, prompt_token_ids = [1], generated = 3}, {temperature = 0.5}]',
    "vocab_size = 1024\nmax_num_seqs = 1",
    'expected_failures = {LP202 = "known", lp203 = {reason = "later", until = 2031-02-03}, LP204 = {reason = "x"}}',
    'against = ["module:Class", {target = "module:Other", case = {extra_args = {}}}]',
]
WRONG = [
    "vocab_sise = 1024",
    "cases = {}",
    "hosts = []",
    'hosts = ["v3"]',
    "vocab_size = 1000",
    "vocab_size = 0",
    'max_num_seqs = "8"',
    'expected_failures = ["LP202"]',
    'expected_failures = {LP202 = " "}',
    "expected_failures = {LP202 = {}}",
    'expected_failures = {LP202 = {reason = "x", untill = "later"}}',
    'against = "module:Class"',
    "against = [{case = {}}]",
    'against = [{target = "module:Class", cases = {}}]',
]


@cache
def validator() -> Validator:
    return Validator(plugins=[], extra_plugins=[PluginWrapper("lpkit", tool_schema)])


def accepted_by_the_schema(text: str) -> bool:
    try:
        validator()(tomllib.loads(text))
    except ValidationError:
        return False
    return True


def accepted_by_lpkit(folder: Path, text: str) -> bool:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    try:
        return projects.find(folder) is not None
    except ProjectError:
        return False


@pytest.mark.parametrize(("settings", "right"), [*((text, True) for text in RIGHT), *((text, False) for text in WRONG)])
def test_the_schema_accepts_what_lpkit_accepts(settings: str, right: bool, tmp_path: Path) -> None:
    text = f"[tool.lpkit]\n{settings}\n"
    assert (accepted_by_the_schema(text), accepted_by_lpkit(tmp_path, text)) == (right, right)


def test_the_schema_has_the_keys_that_lpkit_reads() -> None:
    assert set(tool_schema()["properties"]) == set(projects.KEYS)


@pytest.mark.parametrize("file", PLUGINS, ids=lambda file: file.parent.name)
def test_the_reference_plugins_are_valid(file: Path) -> None:
    assert accepted_by_the_schema(file.read_text(encoding="utf-8"))
