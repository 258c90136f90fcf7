"""Classes for both runners, made from code for vLLM's V1 or V0 engine."""
