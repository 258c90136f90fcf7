"""``lpkit doctor``: what a vLLM in this environment would do with the processors in it, and what to change."""
