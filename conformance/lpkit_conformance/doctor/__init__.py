"""``lpkit doctor``: predicts how a vLLM treats the processors in this environment, and suggests changes."""
