"""Children in these tests are forked from one process that has imported torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from forked import Nursery
from lpkit_conformance.processes import supervise


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with closing(Nursery(("importlib:import_module", "lpkit_conformance.suite.child"))) as nursery:
        yield nursery


@pytest.fixture(autouse=True)
def forks(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "subprocess", nursery)
