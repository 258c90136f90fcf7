"""One module per command: its options, the call, and the output."""
