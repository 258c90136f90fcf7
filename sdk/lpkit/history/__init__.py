"""Lengths and token ids of a processor's rows, on either runner, on the device or on the host."""
