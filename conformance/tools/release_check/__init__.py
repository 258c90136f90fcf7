"""Builds what is committed twice, reads what came out, and installs it in clean environments."""
