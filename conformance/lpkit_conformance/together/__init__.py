"""``lpkit check --together``: two plugins in one engine, in both orders, and what each makes of the other."""
