"""The conformance suite behind ``lpkit check``: the defects of a logits processor, check by check."""
