"""Programs: sequences of operations on requests, with generators, and their form as JSON and as text."""
