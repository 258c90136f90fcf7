"""One document of rules, with which several engines must choose the same greedy tokens of one model."""

from __future__ import annotations

VOCAB, LENGTH = 512, 96
"""Of the model, `lpkit_conformance.engine.model`."""

RULES = (
    '[{"rule": "penalties", "repetition": 1.5}, {"rule": "allow", "ids": [5, 9, 77, 300, 511]}, '
    '{"rule": "choose", "texts": [300, 77]}, {"rule": "ban", "phrases": [9], "when": {"after": 300, "until": 4}}, '
    '{"rule": "no_repeat_ngram", "size": 2, "when": {"from": 8}}]'
)
