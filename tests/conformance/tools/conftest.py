"""Makes the tools importable: pytest's importlib mode puts no folder on the path."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "conformance" / "tools"))
