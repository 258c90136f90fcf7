"""Makes the tools and ``tiny_vllm`` importable: pytest's importlib mode puts no folder on the path."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "conformance" / "tools"), str(Path(__file__).parent / "vllm_canary")]
