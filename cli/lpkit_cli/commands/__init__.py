"""One module per command: its options, the call, and what is printed."""
