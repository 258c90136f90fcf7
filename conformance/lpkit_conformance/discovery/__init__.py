"""Finds and reads plugins without importing them: what is installed, its interfaces, and vLLM's choice of a runner."""
