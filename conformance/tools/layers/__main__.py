"""``PYTHONPATH=conformance/tools python -m layers`` prints what breaks the rules, and exits with 1 if anything does."""

from __future__ import annotations

import sys

from layers.rules import violations

found = violations()
print("\n".join(found) or "every import goes down")
sys.exit(bool(found))
