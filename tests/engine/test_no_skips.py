"""The rule of this folder, applied to itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine


def outcome(folder: Path, source: str) -> tuple[int, str]:
    """Exit code and output of pytest for a test file with this folder's rule."""
    shutil.copy(Path(__file__).parent / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  needs_release(release): newer\n", encoding="utf-8")
    (folder / "test_skipping.py").write_text(f"import pytest\n{source}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "source", ["@pytest.mark.skip(reason='no engine')\ndef test_a(): pass", "pytest.importorskip('surely_absent')"]
)
def test_a_skipped_engine_test_is_a_failure(tmp_path: Path, source: str) -> None:
    code, printed = outcome(tmp_path, source)
    assert code != 0
    assert "an engine test must run, but was skipped" in printed


@pytest.mark.parametrize(("release", "said"), [("0.2.0", "1 passed"), ("999.0", "1 skipped")])
def test_what_a_newer_release_has_is_skipped(tmp_path: Path, release: str, said: str) -> None:
    code, printed = outcome(tmp_path, f"@pytest.mark.needs_release({release!r})\ndef test_a(): pass")
    assert (code, printed.splitlines()[-1].partition(" in ")[0]) == (0, said)
