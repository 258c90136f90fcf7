"""Expectation: what the logits of a request should be, and whether the logits that it got are the same."""
