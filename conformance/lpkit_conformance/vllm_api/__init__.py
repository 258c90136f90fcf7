"""vLLM's own modules where it works, else a stand-in for those that plugins import."""

VERSION = "0.32.0"
"""The vLLM whose interface the stand-in has."""
