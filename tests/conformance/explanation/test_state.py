"""Texts of values in a cause."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lpkit_conformance.explanation.state import short_text


@pytest.mark.parametrize("value", [12, np.int64(12), np.array(12), torch.tensor(12)])
def test_a_number_reads_the_same_from_whatever_holds_it(value: Any) -> None:
    assert short_text(value) == "12"
