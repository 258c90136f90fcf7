"""Values that a request brought, on the device: numbers, lists and sets of token ids per slot."""
