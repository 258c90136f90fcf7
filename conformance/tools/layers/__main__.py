"""``make layers``: print the rooms of each layer, then what breaks the rules, and exit with 1 if anything does."""

from __future__ import annotations

import sys

from layers.rules import as_text, violations

found = violations()
print(as_text(), "\n".join(found) or "every import goes down", sep="\n\n")
sys.exit(bool(found))
