"""The built-in stages of sampling, and each runner's order of them around its processors."""
