"""``-k``: substrings of codes and names, and, or, not, brackets."""

from __future__ import annotations

import pytest
from lpkit_conformance.errors import UsageError
from lpkit_conformance.settings.expression import expression

LABELS = ("LP205 swap", "LP206 swap-chain", "LP501 live-outputs", "LP502 leaves-lists")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("swap", "205 206"),
        ("SWAP and not chain", "205"),
        ("lp5", "501 502"),
        ("swap-chain or live", "206 501"),
        ("not swap and not live", "502"),
        ("not (swap or live)", "502"),
        ("LP205 or LP5 and live", "205 501"),
        ("(LP205 or LP5) and (live or swap)", "205 501"),
        ("nothing", ""),
    ],
)
def test_an_expression_means_what_pytest_would_mean(text: str, meant: str) -> None:
    matches = expression(text)
    assert [label[2:5] for label in LABELS if matches(label)] == meant.split()


@pytest.mark.parametrize("text", ["", "swap or", "and swap", "(swap", "swap)", "not", "swap live", "()"])
def test_what_does_not_parse_is_answered_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="example: -k"):
        expression(text)
