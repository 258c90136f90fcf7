"""Targets of the Makefile that run where nothing can be installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_gpu_is_tested_before_it_is_timed_and_needs_no_environment_of_its_own() -> None:
    command = ["make", "--dry-run", "--no-print-directory", "measure-gpu", "GPU_PYTHON=the-python", "GPU_WORKERS="]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    started = re.findall(r"the-python (?:-m )?(\S+)", printed)
    assert started[0] == "pytest" and len(started) == 5
    assert "pip" not in printed and ".venv" not in printed and "-v -n" not in printed
