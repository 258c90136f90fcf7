"""A runner's data about its requests: tokens, rows or slots, buffers, and the model's logits."""
