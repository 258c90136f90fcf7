"""Facts about vLLM, by release: one table, and its reader."""
