"""What to run and how: cases, a project's ``[tool.lpkit]``, the plan of a run."""
