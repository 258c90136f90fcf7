"""The base classes of processors that run on both of vLLM's runners, and what follows the batch for them."""
