"""The form of our V1 and V2 definitions; ``tests/engine/test_interfaces.py`` compares them with vLLM's own."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from types import SimpleNamespace
from typing import Any

import pytest
from lpkit import v1, v2
from lpkit.sampling_params import SamplingParams


class Half(v1.LogitsProcessor):
    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None: ...


class Identity(v2.LogitsProcessor):
    def apply(self, logits: Any, ctx: v2.LogitsContext) -> Any:
        return logits


@pytest.mark.parametrize("cls", [v1.BatchUpdate, v2.LogitsProcRequestState, v2.LogitsContext])
def test_what_the_engine_gives_is_frozen(cls: Any) -> None:
    given = cls(*range(len(fields(cls))))
    with pytest.raises(FrozenInstanceError):
        setattr(given, fields(cls)[0].name, 1)


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [(Half, (None, None, False)), (v1.LogitsProcessor, (None,) * 3), (v2.LogitsProcessor, (None,) * 2)],
)
def test_a_processor_without_its_abstract_methods_cannot_be_constructed(cls: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="abstract"):
        cls(*arguments)


@pytest.mark.parametrize(
    ("cls", "method", "arguments"),
    [
        (v1.LogitsProcessor, "__init__", (None, None, False)),
        (v1.LogitsProcessor, "is_argmax_invariant", ()),
        (v1.LogitsProcessor, "update_state", (None,)),
        (v1.LogitsProcessor, "apply", (None,)),
        (v2.LogitsProcessor, "apply", (None, None)),
    ],
)
def test_abstract_methods_raise_when_called_through_super(cls: Any, method: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(NotImplementedError):
        getattr(cls, method)(object(), *arguments)


def test_the_state_is_a_view_of_the_runners_request_state() -> None:
    names = [field.name for field in fields(v2.LogitsProcRequestState)]
    runner = SimpleNamespace(**{name: object() for name in names}, other=1)
    state = v2.LogitsProcRequestState.from_request_state(runner)
    assert all(getattr(state, name) is getattr(runner, name) for name in names)


def test_an_undecided_processor_takes_every_request() -> None:
    processor = Identity(None, None)  # type: ignore[arg-type]
    assert processor.add_request(0, SamplingParams()) is True
    assert processor.apply_staged_writes() is None
    assert Identity.validate_params(SamplingParams()) is None


def test_an_annotation_that_python_evaluates_may_make_the_callable_optional() -> None:
    assert None.__class__ in (v1.RequestLogitsProcessor | None).__args__
