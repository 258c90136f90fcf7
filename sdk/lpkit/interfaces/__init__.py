"""vLLM's interfaces: vLLM's own classes where vLLM works, equal definitions elsewhere."""
