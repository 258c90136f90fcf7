"""Child processes: starting them, and ending them with all that they started."""
