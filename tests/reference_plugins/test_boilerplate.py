"""Each plugin is what the template bakes today, but for its processor, its tests and what its README says about it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from lpkit.sampling_params import SamplingParams
from lpkit_cli.scaffold.baking import render
from shipped import PLUGINS, load, settings

IGNORED = {"__pycache__", ".lpkit", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", "build", "dist"}

pytestmark = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)


def answers(plugin: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((plugin / ".lpkit-template.json").read_text(encoding="utf-8"))["answers"]
    return found


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not IGNORED & set(path.parts) and not any(p.endswith(".egg-info") for p in path.parts)
    }


@pytest.fixture
def baked(plugin: Path, tmp_path: Path) -> dict[str, str]:
    return files(render(answers(plugin), tmp_path))


def test_the_folder_is_named_like_the_project(plugin: Path) -> None:
    assert answers(plugin)["project_name"] == plugin.name


def test_files_that_are_not_about_the_rule_are_the_templates(plugin: Path, baked: dict[str, str]) -> None:
    own = {
        f"src/{answers(plugin)['package_name']}/processor.py",
        "tests/test_behaviour.py",
        "README.md",
        "CHANGELOG.md",
        "docs/index.md",
        "pyproject.toml",
    }
    kept = files(plugin)
    assert kept.keys() == baked.keys()
    assert own <= kept.keys()
    for name in kept.keys() - own:
        assert kept[name] == baked[name], name


def test_the_project_file_differs_in_its_cases_only(plugin: Path, baked: dict[str, str]) -> None:
    def shared(text: str) -> str:
        return re.sub(r"^cases = \[\n(?:  .*\n)+\]$", "", text, flags=re.M)

    kept = files(plugin)["pyproject.toml"]
    assert shared(kept) == shared(baked["pyproject.toml"])
    assert shared(kept) != kept


def test_the_readme_differs_in_its_prose_and_parameters_only(plugin: Path, baked: dict[str, str]) -> None:
    def shared(text: str) -> list[str]:
        title, _, rest = text.partition("\n## ")
        rest = re.sub(r'("vllm_xargs": |extra_args=)\{[^}]*\}', r"\1", rest)
        return [*title.splitlines()[:4], *rest.splitlines()]

    assert shared(files(plugin)["README.md"]) == shared(baked["README.md"])


def test_the_examples_of_readme_and_settings_are_accepted(plugin: Path) -> None:
    cls = load(plugin)
    readme = (plugin / "README.md").read_text(encoding="utf-8")
    examples = [ast.literal_eval(found) for found in re.findall(r'(?:"vllm_xargs": |extra_args=)(\{[^}]*\})', readme)]
    cases = [case["extra_args"] for case in settings(plugin).cases]
    assert len(examples) == 3
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
    about = text[: text.index("## Install")]
    for subject in ("`temperature` 0", "masked", "speculative decoding"):
        assert subject in about, subject
