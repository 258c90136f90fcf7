"""Settings of a run: cases, a project's ``[tool.lpkit]``, and the plan."""
