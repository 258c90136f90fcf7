"""Which runner vLLM chooses where the environment asks for V1."""

from __future__ import annotations

import importlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from lpkit_conformance.discovery import releases
from lpkit_conformance.discovery.releases import SWITCH
from lpkit_conformance.doctor.serving import read_command

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


@pytest.mark.parametrize("method", sorted(releases.methods_on_v1((0, 32, 0))))
def test_a_drafter_that_v2_lacks_is_on_v1_for_the_doctor_and_the_engine(method: str) -> None:
    assert unsupported(method=method)
    assert read_command(("vllm", "serve", "--speculative-config.method", method)).demands((0, 32, 0)).v1


@pytest.mark.parametrize("method", ["ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"])
def test_a_drafter_that_v2_has_is_not(method: str) -> None:
    assert not unsupported(method=method)
    assert not read_command(("vllm", "serve", "--speculative-config.method", method)).demands((0, 32, 0)).v1


@pytest.mark.parametrize("feature", ["parallel_drafting", "use_heterogeneous_vocab"])
def test_a_way_of_drafting_that_v2_lacks_is_on_v1_for_both(feature: str) -> None:
    assert unsupported(method="eagle", **{feature: True})
    command = ("vllm", "serve", "--speculative-config", json.dumps({"method": "eagle", feature: True}))
    assert read_command(command).demands((0, 32, 0)).v1


def test_mask_replay_refuses_a_passed_processor_only() -> None:
    verify = importlib.import_module("vllm.config").VllmConfig._verify_sampling_replay_config

    def verified(passed: list[str] | None) -> None:
        model = SimpleNamespace(
            return_sampling_mask=True,
            is_diffusion=False,
            logits_processors=passed,
            logprobs_mode="processed_logprobs",
        )
        verify(SimpleNamespace(model_config=model, use_v2_model_runner=True, speculative_config=None))

    verified(None)
    with pytest.raises(ValueError, match="custom logits processors"):
        verified(["a:A"])


def unsupported(**draft: Any) -> list[str]:
    """What vLLM says that V2 lacks for these drafts."""
    config = importlib.import_module("vllm.config").VllmConfig
    speculative = SimpleNamespace(**{"parallel_drafting": False, "use_heterogeneous_vocab": False, **draft})
    parallel = SimpleNamespace(distributed_executor_backend=None, pipeline_parallel_size=1, use_ubatching=False)
    asked = SimpleNamespace(speculative_config=speculative, parallel_config=parallel)
    found: list[str] = config._get_v2_model_runner_unsupported_features(asked)
    return found
