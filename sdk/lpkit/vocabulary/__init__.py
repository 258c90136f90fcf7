"""The tokenizer of the engine's model, and the token ids of words."""
