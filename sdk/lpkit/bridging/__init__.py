"""What was written for vLLM's V1 or V0 engine, as a class for both runners."""
