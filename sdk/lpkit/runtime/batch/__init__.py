"""What a runner holds of its requests: tokens, rows or slots, buffers, and the logits that a model gives them."""
