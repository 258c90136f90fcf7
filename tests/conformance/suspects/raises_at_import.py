"""Its import fails."""

raise RuntimeError("no licence found")
