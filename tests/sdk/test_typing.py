"""A type checker finds the mistakes in a plugin, and nothing where there are none; as for the oldest Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TYPED = Path(__file__).parent / "typed"
SDK = Path(__file__).parents[2] / "sdk"

# Strict, as generated projects are checked. What torch says of itself is not the question, and takes a minute to read.
CONFIG = """
[mypy]
strict = true
python_version = 3.10
[mypy-torch.*,numpy.*]
follow_imports = skip
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, int]]:
    """(file, line) of each error."""
    folder = tmp_path_factory.mktemp("mypy")
    (folder / "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "-m", "mypy", "--config-file", str(folder / "mypy.ini"), "--cache-dir", str(folder)]
    ran = subprocess.run(
        [*command, "--no-error-summary", "good.py", "wrong.py"],
        cwd=TYPED,
        env={"MYPYPATH": str(SDK)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.stderr and ran.returncode == 1, ran.stderr + ran.stdout
    found = (line.split(":", 3) for line in ran.stdout.splitlines() if ": error: " in line)
    return {(file, int(line)) for file, line, *_ in found}


@pytest.mark.parametrize("file", ["good.py", "wrong.py"])
def test_every_mistake_is_found_and_nothing_else(file: str, complaints: set[tuple[str, int]]) -> None:
    lines = (TYPED / file).read_text("utf-8").splitlines()
    assert [n for name, n in sorted(complaints) if name == file] == [
        n for n, line in enumerate(lines, 1) if line.endswith("# wrong")
    ]


def test_the_plugin_without_mistakes_loads() -> None:
    subprocess.run([sys.executable, str(TYPED / "good.py")], check=True)
