"""A project as ``lpkit new --wrap`` bakes it around a V1 class of another distribution: installed and judged."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from .conftest import Installed, environment

OLD = """
    import torch
    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality


    class Tired(LogitsProcessor):
        '''Takes tired_of off tokens for each time they were written; counts as they come, in a list by row.'''

        def __init__(self, vllm_config, device, is_pin_memory):
            self.device = device
            self.rows = [None] * vllm_config.scheduler_config.max_num_seqs

        @classmethod
        def validate_params(cls, params):
            cost = (params.extra_args or {}).get("tired_of")
            if cost is not None and (type(cost) not in (int, float) or not 0 <= cost <= 100):
                raise ValueError(f"tired_of must be a number from 0 to 100, not {cost!r}")

        def is_argmax_invariant(self):
            return False

        def update_state(self, batch_update):
            if batch_update is None:
                return
            for row, params, prompt, output in batch_update.added:
                cost = (params.extra_args or {}).get("tired_of")
                self.rows[row] = None if cost is None else (cost, output)
            for row in batch_update.removed:
                self.rows[row] = None
            for source, target, kind in batch_update.moved:
                back = self.rows[target] if kind is MoveDirectionality.SWAP else None
                self.rows[target], self.rows[source] = self.rows[source], back

        def apply(self, logits):
            for row, state in enumerate(self.rows[: len(logits)]):
                if state is not None:
                    cost, output = state
                    for token in output:
                        if token >= 0:
                            logits[row, token] -= cost
            return logits
"""
PYPROJECT = """
    [build-system]
    requires = ["hatchling"]
    build-backend = "hatchling.build"

    [project]
    name = "old-plugin"
    version = "1.0"

    [tool.hatch.build.targets.wheel]
    packages = ["old_plugin"]
"""


@pytest.fixture(scope="module")
def wrapped(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Installed]:
    """(project, environment) of a scaffold around ``old-plugin``, both installed beside lpkit's wheel."""
    folder = tmp_path_factory.mktemp("wrapped")
    package = folder / "old" / "old_plugin"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "tired.py").write_text(dedent(OLD), encoding="utf-8")
    (folder / "old" / "pyproject.toml").write_text(dedent(PYPROJECT), encoding="utf-8")
    made = environment(folder / "env", distributions[:1])
    made.install(folder / "old")
    made.lpkit("new", "my-proc", "--wrap", "old_plugin.tired:Tired", cwd=folder)
    made.install(folder / "my-proc")
    return folder / "my-proc", made


def test_it_depends_on_what_it_wraps(wrapped) -> None:
    project, _ = wrapped
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dependencies = ["old-plugin", "torch", "vllm-lpkit' in text


def test_it_is_conformant_on_both_hosts(wrapped, tmp_path: Path) -> None:
    project, installed = wrapped
    report = tmp_path / "report.json"
    done = installed.lpkit("check", "--json", str(report), cwd=project, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (target,) = json.loads(report.read_text(encoding="utf-8"))["targets"]
    assert sorted(target["hosts"]) == ["v1", "v2"]
    assert len({check["code"] for check in target["checks"] if check["status"] == "passed"}) >= 15


def test_it_is_typed_styled_and_passes_its_own_tests(wrapped, tmp_path_factory: pytest.TempPathFactory) -> None:
    project, installed = wrapped
    installed.run("-m", "mypy", "--cache-dir", tmp_path_factory.getbasetemp() / "mypy", cwd=project)
    installed.run("-m", "ruff", "check", "--no-cache", ".", cwd=project)
    installed.run("-m", "ruff", "format", "--no-cache", "--check", ".", cwd=project)
    done = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_lets_a_default_vllm_start(wrapped, tmp_path: Path) -> None:
    _, installed = wrapped
    found = json.loads(installed.lpkit("list", "--json", cwd=tmp_path).stdout)
    (plugin,) = [item for item in found["plugins"] if item["name"] == "my-proc"]
    assert (plugin["interface"], plugin["starts_v1"], plugin["starts_v2"]) == ("both", True, True)
