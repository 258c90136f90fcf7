"""Which runner vLLM chooses where the environment asks for V1."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
from lpkit_conformance.discovery.releases import SWITCH

pytestmark = pytest.mark.engine


def uses_v2(watermark: object = None, hisparse: object = None) -> Any:
    """What the property of vLLM's configuration says; a whole configuration with these features needs a GPU."""
    config = importlib.import_module("vllm.config").VllmConfig
    asked = SimpleNamespace(
        attention_config=SimpleNamespace(hisparse_config=hisparse),
        watermark_config=watermark,
        _get_v2_model_runner_unsupported_features=list,
    )
    return config.use_v2_model_runner.fget(asked)


def test_the_built_in_watermark_overrides_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    assert uses_v2() is False
    assert uses_v2(watermark=object()) is True


def test_hisparse_refuses_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    with pytest.raises(ValueError, match="HiSparse requires Model Runner V2"):
        uses_v2(hisparse=object())
