"""Watching code run: tensor operations, and which lines are the author's."""
