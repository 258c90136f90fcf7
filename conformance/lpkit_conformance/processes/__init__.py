"""Child processes: one protocol for their jobs, their events, their loss and their end."""
