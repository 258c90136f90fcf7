"""The typed plugins that `make types` reads: the one without mistakes loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_plugin_without_mistakes_loads() -> None:
    subprocess.run([sys.executable, str(Path(__file__).parent / "typed" / "good.py")], check=True)
