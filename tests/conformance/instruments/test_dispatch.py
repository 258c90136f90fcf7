"""Operations on the meta device import neither torch's compiler nor what it computes sizes with: it takes a second."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lpkit_conformance.instruments.dispatch import ANSWERS, Watch, without_compiler


class Through(Watch):  # type: ignore[no-untyped-call]
    """Operations take the way through torch's references in Python, as under LP308."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ANSWERS:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_operations_on_the_meta_device_import_nothing_of_the_compiler() -> None:
    logits, ids = torch.empty(3, 128, device="meta"), torch.zeros(3, 2, dtype=torch.int64, device="meta")
    with without_compiler(), Through():  # type: ignore[no-untyped-call]
        instead = [sys.modules[name] for name in ANSWERS]
        chosen = torch.where(ids < 2, -logits.gather(1, ids), 0.0)
        logits[torch.arange(3, device="meta").unsqueeze(1), ids] = chosen * 2.0
        assert logits.std(1).shape == (3,)
        assert [sys.modules[name] for name in ANSWERS] == instead
    assert not ANSWERS.keys() & sys.modules.keys()


@pytest.mark.parametrize("name", ANSWERS)
def test_code_that_asks_for_more_than_is_answered_gets_the_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimpleNamespace(config="its own")
    monkeypatch.setattr(importlib, "import_module", {name: real}.__getitem__)
    with without_compiler():
        assert sys.modules[name].config == "its own"
        assert name not in sys.modules


@pytest.mark.parametrize("name", ANSWERS)
def test_a_module_that_is_there_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimpleNamespace()
    monkeypatch.setitem(sys.modules, name, real)  # type: ignore[arg-type]
    with without_compiler():
        assert sys.modules[name] is real
    assert sys.modules[name] is real
