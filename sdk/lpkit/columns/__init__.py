"""Per-request values on the device: numbers, lists and sets of token ids, one entry per slot."""
