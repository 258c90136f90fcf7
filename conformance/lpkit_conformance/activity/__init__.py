"""Where a plugin acts: at which steps, and what switches it on."""
