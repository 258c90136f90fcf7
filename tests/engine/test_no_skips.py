"""The rule of this folder, applied to itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\ndef test_a(): pytest.skip('no engine')\n",
        "import pytest\n@pytest.mark.skip(reason='no engine')\ndef test_a(): pass\n",
        "import pytest\npytest.importorskip('surely_absent')\n",
    ],
    ids=["call", "mark", "module"],
)
def test_a_skipped_engine_test_is_a_failure(tmp_path: Path, source: str) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_skipping.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "an engine test must run, but was skipped" in done.stdout


@pytest.mark.parametrize(("release", "said"), [("0.2.0", "1 passed"), ("999.0", "1 skipped")])
def test_what_a_newer_release_has_is_skipped(tmp_path: Path, release: str, said: str) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  needs_release(release): newer\n", encoding="utf-8")
    source = f"import pytest\n@pytest.mark.needs_release({release!r})\ndef test_a(): pass\n"
    (tmp_path / "test_newer.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1].partition(" in ")[0]) == (0, said)
