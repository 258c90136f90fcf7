"""What every check says about every planted defect and every correct processor of the zoo, host by host.

The zoo's own tests hold that the named check catches its defect; this holds all the other verdicts as well.
"""

from __future__ import annotations

import pytest
from golden import hold
from zoo import matrix, verdicts


@pytest.mark.deep
@pytest.mark.parametrize("style", verdicts.STYLES)
def test_every_verdict_is_the_same(style: str) -> None:
    hold(f"verdicts-{style}", verdicts.judged(verdicts.of_style(style)))


def test_there_are_verdicts_on_every_specimen() -> None:
    judged = [identity for style in verdicts.STYLES for identity in verdicts.held(style)]
    assert sorted(judged) == sorted(item.id for item in verdicts.everything())


def test_the_page_with_the_matrix_is_up_to_date() -> None:
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.page()
