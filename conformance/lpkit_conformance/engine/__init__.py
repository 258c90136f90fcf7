"""A tiny real vLLM engine, in this process or in a child process."""
