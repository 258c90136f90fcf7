"""Child processes: one protocol for what they are to do, what they say, how they are lost and how they are ended."""
