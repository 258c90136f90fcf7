"""The built-in stages of sampling, and their order on each runner around the processors."""
