"""Programs: sequences of operations on requests, with generators, shrinking, and their form as JSON and as text."""
