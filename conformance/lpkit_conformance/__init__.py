"""The conformance suite behind ``lpkit check``: what can go wrong with a logits processor, check by check."""
