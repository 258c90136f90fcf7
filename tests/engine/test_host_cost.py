"""The host's part of a step: launches, operations, allocations, and for some plugins instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "conformance" / "tools"

COUNTS = """
import json, sys
from pathlib import Path
from host_cost.driver import build, install
driver = install(build(Path(sys.argv[1])))

from host_cost.measure import counts
from host_cost.steps import of_plugin, plugins

found = {}
for name, cls, case in plugins():
    for runner in ("v1", "v2"):
        few, many = (counts(of_plugin(name, cls, case, runner, batch), driver)[:3] for batch in (2, 9))
        assert few == many, (name, runner, few, many)
        found.setdefault(name, []).append(few)
print(json.dumps(found))
"""


def python(*arguments: str) -> str:
    """Run Python with the tool, in a process of its own, whose Triton takes the CPU for a GPU."""
    path = os.pathsep.join(filter(None, (str(TOOLS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
