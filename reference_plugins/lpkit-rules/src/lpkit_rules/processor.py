"""Rules as data: a request brings its chain of rules, a document of JSON. All of it is `lpkit.rules`."""

from __future__ import annotations

from lpkit.rules.chain import Rules as Chain


class Rules(Chain):
    """Run the chain of rules that a request brings as `rules`."""
