"""Fixture: a site folder that the doctor examines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from doctor_place import Place
from lpkit_conformance.discovery.runner_choice import SWITCH
from lpkit_conformance.doctor import versions


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(versions, "gpu_visible", lambda: True)
    return Place(tmp_path / "site")
