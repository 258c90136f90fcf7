"""The zoo, the reference plugins and the benchmarks, importable; and which device these tests compare the CPU with."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(path) for path in sorted(ROOT.glob("reference_plugins/*/src"))]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/conformance", "tests/gpu/helpers", "benchmarks")]
