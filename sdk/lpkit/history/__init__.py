"""What a processor sees of its rows: lengths and token ids, on either runner, on the device or on the host."""
