"""The form of our V1 definitions; ``tests/engine/test_interfaces.py`` compares what they do with vLLM's own code."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from lpkit.interfaces import v1_interface as v1


def test_batch_update_fields_come_in_vllms_order() -> None:
    assert [field.name for field in fields(v1.BatchUpdate)] == ["batch_size", "removed", "added", "moved"]


def test_batch_update_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        v1.BatchUpdate(4, [], [], []).batch_size = 1  # type: ignore[misc]


@pytest.mark.parametrize("method", ["__init__", "apply", "is_argmax_invariant", "update_state"])
def test_abstract_methods_raise_when_called_through_super(method: str) -> None:
    arguments = {"__init__": (None, None, False), "apply": (None,), "update_state": (None,)}.get(method, ())
    with pytest.raises(NotImplementedError):
        getattr(v1.LogitsProcessor, method)(object(), *arguments)


def test_a_processor_without_all_four_methods_cannot_be_constructed() -> None:
    class Half(v1.LogitsProcessor):
        def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None: ...

    with pytest.raises(TypeError, match="abstract"):
        Half(None, None, False)  # type: ignore[abstract]


def test_an_annotation_that_python_evaluates_may_make_the_callable_optional() -> None:
    assert None.__class__ in (v1.RequestLogitsProcessor | None).__args__
