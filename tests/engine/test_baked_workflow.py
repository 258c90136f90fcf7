"""The steps of a baked project's workflow that need a real vLLM, as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from lpkit_cli.scaffold.baking import bake
from lpkit_cli.scaffold.naming import names_for

pytestmark = pytest.mark.engine


def test_the_plugin_conforms_in_the_engine(tmp_path: Path, sources: str) -> None:
    project = bake(names_for("my-proc"), "processor", tmp_path)
    workflow = yaml.safe_load((project / ".github/workflows/vllm.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    scripts = [
        step["run"]
        for step in job["steps"]
        if "lpkit doctor" in step.get("run", "") or "lpkit check" in step.get("run", "")
    ]
    assert len(scripts) == 2
    paths = os.pathsep.join([sources, str(project / "src")])
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for script in scripts:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=project,
            env={**os.environ, "PATH": here, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if "lpkit check" in script:
            assert " passed" in done.stdout
