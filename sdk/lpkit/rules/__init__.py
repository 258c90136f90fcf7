"""Rules, a class per module; and rules as data: :mod:`lpkit.rules.chain` runs the chain that a request brings."""

EVERYTHING = 2**40
"""Tokens: more than any text has."""
