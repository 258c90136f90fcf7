"""Measures the host's part of a step without a GPU: the real Triton launches over a driver that does nothing."""
