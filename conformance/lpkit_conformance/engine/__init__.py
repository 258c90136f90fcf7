"""A tiny real vLLM engine, in this process or in one of its own."""
