"""``lpkit check --together``: two plugins in one engine, in both orders, and their effect on each other."""
