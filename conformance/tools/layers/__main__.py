"""``make layers``: print the rooms of each layer with their lines, and what breaks the rules; then exit with 1."""

from __future__ import annotations

import sys

from layers.rules import as_text, violations

broken = violations()
print(as_text(), "\n".join(broken) or "every import goes down, and every room keeps to its budget", sep="\n\n")
sys.exit(bool(broken))
