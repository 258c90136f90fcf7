"""vLLM's interfaces, found where vLLM works, and defined alike for where it does not."""
