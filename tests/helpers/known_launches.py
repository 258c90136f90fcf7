"""Launches of a step of each reference plugin, as they are known."""

from __future__ import annotations

LAUNCHES = {
    "lpkit-allowed-tokens": [(2, 2)],
    "lpkit-cite-from-prompt": [(2, 1)],
    "lpkit-dry": [(3, 2)],
    "lpkit-forced-sequence": [(4, 3)],
    "lpkit-greenlist-watermark": [(3, 2)],
    "lpkit-logit-bias": [(1, 1)],
    "lpkit-loop-breaker": [(5, 4), (74, 72)],  # an end of several tokens is not recorded
    "lpkit-min-p": [(2, 2)],
    "lpkit-no-repeat-ngram": [(3, 2)],
    "lpkit-ocr-ngram": [(3, 2)],
    "lpkit-penalties": [(3, 2)],
    "lpkit-synthid": [(4, 3)],
    "lpkit-target-token": [(2, 2)],
    "lpkit-temperature": [(2, 2)],
    "lpkit-thinking-budget": [(4, 3)],
    "lpkit-top-n-sigma": [(2, 2)],
    "lpkit-truncation": [(2, 2), (34, 34), (36, 36)],
    "lpkit-xtc": [(4, 3)],
}
"""On V1 and V2, for each case of a plugin; a plugin that is not listed must keep the budget of `lpkit bench`."""
