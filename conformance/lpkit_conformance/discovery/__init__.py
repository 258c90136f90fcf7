"""Finding and reading plugins without importing them: what is installed, what it implements, what vLLM would do."""
