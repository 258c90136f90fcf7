"""Makes the modules of ``benchmarks/`` importable, which are scripts, and the plugins as they lie in the tree."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))
sys.path.extend(str(path) for path in sorted(ROOT.glob("reference_plugins/*/src")))
