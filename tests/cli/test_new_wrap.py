"""``lpkit new --wrap``: a project around an existing processor, and the message if nothing can be wrapped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from command import FIXTURES
from lpkit.loading import LoadError
from lpkit_cli.app import app
from lpkit_cli.scaffold.baking import template_directory
from lpkit_cli.scaffold.naming import names_for
from lpkit_cli.scaffold.wrapping import context, import_line, toml
from lpkit_conformance.discovery import bridgeable
from lpkit_conformance.discovery.bridgeable import Bridgeable
from lpkit_conformance.errors import NotBridgeableError
from lpkit_conformance.vllm_api.choose import prepared
from typer.testing import CliRunner

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MORE = """
    class MyProc(OldTarget):
        pass

    def never_twice(output_ids, logits):
        if output_ids:
            logits[output_ids[-1]] = float("-inf")
        return logits

    class Boost:
        def __init__(self, token_id: int, boost: float = 2.0):
            self.token_id, self.boost = token_id, max(-100.0, min(boost, 100.0))

        def __call__(self, prompt_ids, past_ids, scores):
            scores[self.token_id] += self.boost
            return scores

    def make(params):
        return never_twice if (params.extra_args or {}).get("no_repeat") else None
"""

SOFTLY = """
    from vllm.v1.sample.logits_processor import LogitsProcessor

    class Softly(LogitsProcessor):
        def __init__(self, vllm_config, device, is_pin_memory):
            pass

        def is_argmax_invariant(self):
            return True

        def update_state(self, batch_update):
            pass

        def apply(self, logits):
            return logits * 0.5
"""

EARLY = "LP201 or LP202 or LP203 or LP204"
"""Some of a project's own tests."""


class Here:
    """The child that examines a target, as a part of this process: tests/conformance/discovery is about the child."""

    def __init__(self, entry: str) -> None: ...

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "old_package"]:
            del sys.modules[name]

    def call(self, job: dict[str, Any], limit: float) -> list[Any]:
        with prepared():
            try:
                return [*bridgeable.examined(job["target"]), ""]
            except (NotBridgeableError, LoadError) as error:
                return ["", [], str(error)]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, from which ``old_package.old`` can be imported."""
    monkeypatch.setattr(bridgeable, "Child", Here)
    folder = tmp_path / "elsewhere"
    monkeypatch.syspath_prepend(folder)
    (folder / "old_package").mkdir(parents=True)
    (folder / "old_package" / "__init__.py").touch()
    (folder / "old_package" / "old.py").write_text(
        (FIXTURES / "old_plugin.py").read_text(encoding="utf-8") + dedent(MORE), encoding="utf-8"
    )
    return folder


@pytest.fixture
def old(sources: str, elsewhere: Path) -> dict[str, str]:
    """The environment of a process that can import it."""
    return {"PYTHONPATH": os.pathsep.join((sources, str(elsewhere)))}


@pytest.mark.parametrize("name", ["OldTarget", "never_twice", "Boost"])
def test_it_imports_the_target_and_keeps_the_style_rules(new, tmp_path: Path, name: str) -> None:
    new("my-proc", "--wrap", f"old_package.old:{name}")
    project = tmp_path / "my-proc"
    text = (project / "src/my_proc/processor.py").read_text(encoding="utf-8")
    assert f"from old_package.old import {name}\n" in text
    for path in project.rglob("*"):
        if path.is_file() and ".github" not in str(path):
            assert "{%" not in path.read_text(encoding="utf-8"), path
            assert "cookiecutter" not in path.read_text(encoding="utf-8"), path
    for command in (["check"], ["format", "--check"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, "--no-cache", "."], cwd=project, check=True)
    record = json.loads((project / ".lpkit-template.json").read_text(encoding="utf-8"))
    assert (record["answers"]["style"], record["answers"]["wraps"]) == ("wrap", f"old_package.old:{name}")
    readme = (project / "README.md").read_text(encoding="utf-8")
    assert f"bridges `old_package.old:{name}`" in readme
    assert '"vllm_xargs"' in readme


def own_tests(project: Path, old: dict[str, str], *what: str) -> subprocess.CompletedProcess[str]:
    """The scaffolded project's own tests, as its author would run them."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *what],
        cwd=project,
        env={**old, "PATH": "", "PYTHONPATH": os.pathsep.join((old["PYTHONPATH"], str(project / "src")))},
        capture_output=True,
        text=True,
        check=False,
    )


# With every check a class is run in tests/packaging.
@pytest.mark.broad
@pytest.mark.parametrize("every_check", [False, pytest.param(True, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", ["never_twice", "Boost"])
def test_as_written_it_passes_its_own_tests(new, old, tmp_path: Path, name: str, every_check: bool) -> None:
    new("my-proc", "--wrap", f"old_package.old:{name}")
    chosen = [] if every_check else ["-k", EARLY]
    tests = own_tests(tmp_path / "my-proc", old, *chosen)
    assert tests.returncode == 0, tests.stdout + tests.stderr
    assert int(re.findall(r"(\d+) passed", tests.stdout)[-1]) > 3


def test_cases_are_guessed_with_a_note_or_given(new, tmp_path: Path) -> None:
    done = new("my-proc", "--wrap", "old_package.old:OldTarget")
    assert "was guessed from its source" in done.stdout
    assert "No installed distribution provides 'old_package'" in done.stdout
    text = (tmp_path / "my-proc/pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["tool"]["lpkit"]["cases"] == [{"extra_args": {"old_target": 7}}]
    assert "# Add the distribution that provides old_package." in text
    case = {"extra_args": {"old_target": 9, "weights": [0.5, 2e-9], "odd key": {}}, "prompt_token_ids": [3]}
    done = new("given", "--wrap", "old_package.old:OldTarget", "--case", json.dumps(case))
    assert "guessed" not in done.stdout
    text = (tmp_path / "given/pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["tool"]["lpkit"]["cases"] == [case]


def test_a_class_that_acts_on_every_request_needs_no_arguments(
    new, in_process, selected, tmp_path, monkeypatch
) -> None:
    (tmp_path / "elsewhere/old_package/softly.py").write_text(dedent(SOFTLY), encoding="utf-8")
    done = new("my-proc", "--wrap", "old_package.softly:Softly")
    assert "cannot be read from its source" in done.stdout
    settings = (tmp_path / "my-proc/pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(settings)["tool"]["lpkit"]["cases"] == [{}]
    assert "# The source of what is wrapped does not tell" in settings
    monkeypatch.chdir(tmp_path / "my-proc")
    assert CliRunner().invoke(app, ["check", *selected]).exit_code == 0


def test_a_class_with_the_projects_own_name_is_imported_under_another(new, tmp_path: Path) -> None:
    new("my-proc", "--wrap", "old_package.old:MyProc")
    text = (tmp_path / "my-proc/src/my_proc/processor.py").read_text(encoding="utf-8")
    assert "from old_package.old import MyProc as WrappedMyProc" in text
    assert "wraps = WrappedMyProc" in text


def test_the_wrapped_distribution_is_a_dependency_and_its_own_entry_point_is_warned_of(new, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "old_plugin-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: old-plugin\nVersion: 1.2\n", encoding="utf-8")
    (folder / "top_level.txt").write_text("old_package\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(
        "[vllm.logits_processors]\nold = old_package.old:OldTarget\n", encoding="utf-8"
    )
    done = new("my-proc", "--wrap", "old_package.old:OldTarget")
    assert "old-plugin is itself an installed plugin (old)" in done.stdout
    assert "does not start if its class is V1-only" in done.stdout
    config = tomllib.loads((tmp_path / "my-proc/pyproject.toml").read_text(encoding="utf-8"))
    assert "old-plugin" in config["project"]["dependencies"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--wrap", "old_package.old:OldTraget"], "Did you mean 'OldTarget'"),
        (["--wrap", "lpkit:LogitsProcessor"], "runs on both of vLLM's runners already"),
        (["--wrap", "OldTarget"], "is not of the form module:Class"),
        (["--wrap", "old_package.old:OldTarget", "--style", "request"], "--wrap and --style exclude each other"),
        (["--wrap", "old_package.old:OldTarget", "--case", '{"extra_args": {"a": null}}'], "cannot hold null"),
        (["--case", "{}"], "--case is for --wrap"),
    ],
)
def test_bad_input_is_refused_in_a_line_and_nothing_is_written(new, tmp_path: Path, options, message) -> None:
    done = new("my-proc", *options, code=2)
    assert message in done.stderr
    assert done.stderr.rstrip().endswith("Nothing was written.")
    assert not (tmp_path / "my-proc").exists()


def test_a_project_that_would_hide_the_wrapped_package_is_refused(new) -> None:
    done = new("old-package", "--wrap", "old_package.old:OldTarget", code=2)
    assert "choose another name, e.g. old-package-bridge" in done.stderr


def test_plain_cookiecutter_wraps_a_v1_class(old, tmp_path: Path) -> None:
    plain = [sys.executable, "-m", "cookiecutter", str(template_directory()), "--no-input", "style=wrap"]
    environment = {**old, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "PATH": ""}
    done = subprocess.run([*plain, "project_name=a-b"], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode != 0
    answers = ["project_name=a-b", "wraps=old_package.old:OldTarget"]
    subprocess.run([*plain, *answers], cwd=tmp_path, env=environment, check=True, capture_output=True)
    text = (tmp_path / "a-b/src/a_b/processor.py").read_text(encoding="utf-8")
    assert "from old_package.old import OldTarget\n" in text
    assert "class AB(lpkit.Bridged):" in text
    tomllib.loads((tmp_path / "a-b/pyproject.toml").read_text(encoding="utf-8"))


def test_long_import_lines_are_wrapped() -> None:
    assert import_line("a", "B", "B") == "from a import B"
    assert import_line("a" * 100, "B" * 20, "B" * 20) == f"from {'a' * 100} import (\n    {'B' * 20},\n)"


@pytest.mark.parametrize(
    "value",
    [{"a": 1, "b c": [True, 0.5, 'x"y\n'], "d": {"e": {}, "f-g": []}}, {"x": float("inf")}, {"x": 1e-12}],
)
def test_cases_survive_toml(value: object) -> None:
    assert tomllib.loads(f"case = {toml(value)}") == {"case": value}


@pytest.mark.parametrize(
    ("key", "value"),
    [("target_token", 7), ("stop_ids", [7, 8]), ("min_p", 0.5), ("ngram_size", 2), ("strength", 1.5)],
)
def test_guessed_values_suit_the_keys_names(key: str, value: object) -> None:
    target = Bridgeable("m", "C", "class", (key,))
    assert context(target, names_for("my-proc"), [])["_cases"] == f"  {toml({'extra_args': {key: value}})},"
