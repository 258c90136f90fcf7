"""Makes the helpers of these tests importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

# The stored projects bring tests of their own; test_baked.py runs them.
collect_ignore = ["golden", "fixtures"]
