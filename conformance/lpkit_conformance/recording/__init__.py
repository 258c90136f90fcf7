"""Runs tiny real vLLM engines, and records what their logits processors were told.

Nothing here imports torch or vLLM until an engine is started.
"""
