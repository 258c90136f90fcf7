"""Web address of the published documentation."""

from __future__ import annotations

DOCUMENTATION = "https://vllm-lpkit.readthedocs.io/en/latest/"
"""The published documentation; ``[project.urls]`` names the same address."""


def check_page(code: str) -> str:
    """The address of a check's page."""
    return f"{DOCUMENTATION}checks/{code}/"
