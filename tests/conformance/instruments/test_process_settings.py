"""Each setting of the process is seen when it changes, and put back."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit_conformance.instruments.process_settings import SETTINGS, settings, settings_kept

CHANGES: dict[str, Any] = {
    "default dtype": torch.float64,
    "default device": torch.device("meta"),
    "grad mode": False,
    "number of torch's threads": 2,
    "deterministic mode": "warn",
    "precision of matrix products": "medium",
    "environment": {"ONLY": "this"},
    "root logger's handlers": [logging.NullHandler()],
    "root logger's level": "CRITICAL",
    "disabled levels of logging": 10,
    "garbage collection": False,
    "working directory": str(Path(__file__).parent),
    "handling of numpy's errors": {"divide": "raise"},
    "recursion limit": 5000,
    "handler of SIGTERM": lambda *_: None,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_change_is_seen_in_this_setting_alone_and_put_back(name: str) -> None:
    before = settings()
    with settings_kept():
        SETTINGS[name][1](CHANGES[name])
        during = settings()
    assert [other for other in before if during[other] != before[other]] == [name]
    assert settings() == before
