"""Each plugin's folder holds what is about its rule and no more; README, settings and class agree."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit.sampling_params import SamplingParams
from plugin_hosts import Asked, on_v1, on_v2
from sdk_hosts import logits_of
from shipped import PLUGINS, load, settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEMPORARY = {"__pycache__", ".lpkit", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", "build", "dist"}
FILES = {
    "README.md",
    "pyproject.toml",
    "src/{package}/__init__.py",
    "src/{package}/processor.py",
    "src/{package}/py.typed",
    "tests/test_behaviour.py",
}

EXAMPLE = re.compile(r"""(?:"vllm_xargs": |extra_args=)(\{(?:"(?:\\.|[^"])*"|'[^']*'|[^{}"'])*\})""")
"""A flat object, whose strings may hold braces."""

pytestmark = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)


def package(plugin: Path) -> str:
    return plugin.name.replace("-", "_")


def table(plugin: Path) -> dict[str, Any]:
    return tomllib.loads((plugin / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_folder_has_no_files_but_these(plugin: Path) -> None:
    """Workflows, a licence and a changelog come from the template; ``tests/packaging`` tests them there."""
    names = (path.relative_to(plugin) for path in plugin.rglob("*") if path.is_file())
    kept = {
        name.as_posix()
        for name in names
        if not TEMPORARY & {*name.parts} and not any(part.endswith(".egg-info") for part in name.parts)
    }
    more_tests = {name for name in kept if re.fullmatch(r"tests/test_\w+\.py", name)}
    assert kept == {name.format(package=package(plugin)) for name in FILES} | more_tests


def test_the_project_file_says_no_more_than_a_plugin_needs(plugin: Path) -> None:
    found = table(plugin)
    assert found.keys() == {"build-system", "project", "tool"}
    assert found["tool"].keys() == {"lpkit", "pytest"}
    assert found["project"]["name"] == plugin.name
    assert found["project"]["dependencies"] == ["torch", "vllm-lpkit>=0.1"]
    assert found["project"]["entry-points"].keys() == {"vllm.logits_processors"}
    ((name, target),) = settings(plugin).entry_points.items()
    assert (name, target) == (plugin.name, f"{package(plugin)}.processor:{load(plugin).__name__}")


def test_the_examples_of_readme_and_settings_are_accepted(plugin: Path) -> None:
    cls = load(plugin)
    readme = (plugin / "README.md").read_text(encoding="utf-8")
    examples = [ast.literal_eval(found) for found in EXAMPLE.findall(readme)]
    cases = [case["extra_args"] for case in settings(plugin).cases]
    assert examples
    assert len(cases) >= 2
    for extra_args in examples + cases:
        cls.validate_params(SamplingParams(extra_args=extra_args))
        assert cls.Params.parse(extra_args) is not None


def test_the_readme_lists_every_parameter_and_no_other(plugin: Path) -> None:
    readme = (plugin / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", readme, flags=re.M)
    assert listed == list(load(plugin).Params.keys())


def test_no_plugin_takes_another_ones_keys_for_its_own(plugin: Path) -> None:
    mine = load(plugin)
    for other in PLUGINS:
        if other != plugin:
            foreign = dict.fromkeys(load(other).Params.keys(), "anything")
            assert mine.Params.parse(foreign) == mine.Params.parse({})


def test_the_readme_says_what_happens_when_greedy_when_masked_and_with_drafts(plugin: Path) -> None:
    text = (plugin / "README.md").read_text(encoding="utf-8")
    about = text[: text.index("## Use")]
    for subject in ("`temperature` 0", "masked", "speculative decoding"):
        assert subject in about, subject


def test_a_request_that_does_not_ask_is_left_alone(plugin: Path) -> None:
    logits, asked = logits_of(2), Asked({"other_plugins_key": 1}, [4, 5, 4], [1] * 70)
    for applied in (on_v1, on_v2):
        assert torch.equal(applied(load(plugin), logits, [asked, asked]), logits)
