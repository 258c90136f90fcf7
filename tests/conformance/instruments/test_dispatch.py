"""Operations on the meta device do not import torch's compiler, which takes a second."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch
from lpkit_conformance.instruments.dispatch import COMPILER, without_compiler


@pytest.fixture(autouse=True)
def not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, COMPILER, raising=False)


def test_operations_on_the_meta_device_do_not_import_the_compiler() -> None:
    with without_compiler():
        nothing = sys.modules[COMPILER]
        assert torch.ones(2, device="meta").neg().shape == (2,)
        assert sys.modules[COMPILER] is nothing
    assert COMPILER not in sys.modules


def test_who_wants_more_of_the_compiler_than_to_be_left_alone_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimpleNamespace(config="its own")
    monkeypatch.setattr(importlib, "import_module", {COMPILER: real}.__getitem__)
    with without_compiler():
        assert sys.modules[COMPILER].config == "its own"
        assert COMPILER not in sys.modules


def test_a_compiler_that_is_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimpleNamespace()
    monkeypatch.setitem(sys.modules, COMPILER, real)  # type: ignore[arg-type]
    with without_compiler():
        assert sys.modules[COMPILER] is real
    assert sys.modules[COMPILER] is real
