"""Makes the helpers of these tests importable, and the zoo of the suite's own tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "contracts" / "helpers"), str(TESTS / "conformance")]

# The stored projects bring tests of their own; test_baked.py runs them.
collect_ignore = ["golden", "fixtures"]
