"""Each plugin passes the tests that it brings, the conformance suite among them, as its owner would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted((ROOT / "reference_plugins").iterdir())

# One of each kind: dense, sparse with history, adapter. A suite takes a quarter of a minute.
ALWAYS = {"lpkit-min-p", "lpkit-penalties", "lpkit-no-repeat-ngram"}


@pytest.mark.parametrize(
    "plugin",
    [pytest.param(path, id=path.name, marks=() if path.name in ALWAYS else pytest.mark.deep) for path in PLUGINS],
)
def test_own_tests(plugin: Path) -> None:
    path = os.pathsep.join(str(ROOT / folder) for folder in ("sdk", "conformance", plugin / "src"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=plugin,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Some checks do not concern some plugins; most concern all.
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) >= 60
