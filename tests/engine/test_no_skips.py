"""The rule of this folder, applied to itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

TESTS = """
import pytest

@pytest.mark.skip(reason="no engine")
def test_that_is_skipped(): pass

@pytest.mark.needs_release("0.2.0")
def test_of_an_older_release(): pass

@pytest.mark.needs_release("999.0")
def test_of_a_newer_release(): pass
"""


def test_a_skipped_engine_test_is_a_failure_unless_a_newer_release_has_what_it_needs(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  needs_release(release): newer\n", encoding="utf-8")
    (tmp_path / "test_three.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "test_absent.py").write_text("import pytest\npytest.importorskip('surely_absent')\n", encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "-rA"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    *_, last = done.stdout.splitlines()
    assert (done.returncode, last.partition(" in ")[0]) == (1, "1 passed, 1 skipped, 2 errors")
    assert done.stdout.count("an engine test must run, but was skipped") >= 2
    assert "PASSED test_three.py::test_of_an_older_release" in done.stdout
