"""The zoo and the reference plugins, importable; and which device these tests compare the CPU with."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(path) for path in sorted(ROOT.glob("reference_plugins/*/src"))]
sys.path[:0] = [str(ROOT / "tests" / "conformance"), str(ROOT / "tests" / "gpu" / "helpers")]
