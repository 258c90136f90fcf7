"""Explanation: why a small program fails, in which line, and what to change; its pictures and timelines."""
