"""The runner that vLLM chooses where the environment asks for V1."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from lpkit_conformance.discovery.runner_choice import SWITCH, Demands
from lpkit_conformance.doctor.serving import read_command
from lpkit_conformance.vllm_api.facts import VLLM
from lpkit_conformance.vllm_api.releases import Release, is_before

pytestmark = pytest.mark.engine


def uses_v2(watermark: object = None, hisparse: object = None) -> Any:
    """Read the property of vLLM's configuration alone; a whole configuration with these features needs a GPU."""
    config = importlib.import_module("vllm.config").VllmConfig
    asked = SimpleNamespace(
        attention_config=SimpleNamespace(hisparse_config=hisparse),
        watermark_config=watermark,
        _get_v2_model_runner_unsupported_features=list,
    )
    return config.use_v2_model_runner.fget(asked)


@pytest.mark.needs_release("0.30")
def test_the_built_in_watermark_overrides_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    assert uses_v2() is False
    assert uses_v2(watermark=object()) is True


@pytest.mark.needs_release("0.30")
def test_hisparse_refuses_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    with pytest.raises(ValueError, match="HiSparse requires Model Runner V2"):
        uses_v2(hisparse=object())


METHODS = (
    *("ngram", "suffix", "medusa", "mlp_speculator", "custom_class"),
    *("eagle", "eagle3", "mtp", "draft_model", "dflash"),
)


def before_0_32(release: Release | None) -> bool:
    return is_before(release, (0, 32, 0))


LACKING: dict[str, tuple[dict[str, Any], tuple[str, ...], Callable[[Release | None], bool]]] = {
    **{
        method: (
            {"method": method},
            ("--speculative-config.method", method),
            lambda release, method=method: method in VLLM.entries("only-on-v1", release),
        )
        for method in METHODS
    },
    "parallel drafts": (
        {"method": "eagle", "parallel_drafting": True},
        ("--speculative-config", '{"method": "eagle", "parallel_drafting": true}'),
        lambda release: True,
    ),
    "another vocabulary": (
        {"method": "eagle", "use_heterogeneous_vocab": True},
        ("--speculative-config", '{"method": "eagle", "use_heterogeneous_vocab": true}'),
        lambda release: not before_0_32(release),
    ),
    "elastic experts": ({"experts": True}, ("--enable-elastic-ep",), before_0_32),
    "mamba cache": ({"cache": "all"}, ("--mamba-cache-mode", "all"), before_0_32),
    "stock compiler": ({"compiled": 1}, ("-cc.mode=stock_torch_compile",), before_0_32),
    "sequence parallelism": (
        {"sequences": True, "ranks": 2},
        ("-cc.pass_config.enable_sp=true", "-tp", "2"),
        before_0_32,
    ),
}
"""Settings of the engine, the same as options of its command, and whether a release's V2 lacks the feature."""


@pytest.mark.needs_release("0.31")
@pytest.mark.parametrize("feature", LACKING)
def test_a_feature_that_v2_lacks_is_on_v1_for_the_doctor_and_the_engine(feature: str, release: Release | None) -> None:
    settings, options, lacking = LACKING[feature]
    assert bool(unsupported(**settings)) is lacking(release)
    assert bool(demands(release, *options).v1) is lacking(release)


@pytest.mark.needs_release("0.31")
@pytest.mark.parametrize("switched", [False, True])
@pytest.mark.parametrize("stages", [1, 2])
def test_dual_batch_overlap_is_on_v2_where_the_switch_asks_for_it_for_both(
    switched: bool, stages: int, release: Release | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if switched:
        monkeypatch.setenv(SWITCH, "1")
    lacking = not switched or stages > 1
    assert bool(unsupported(overlap=True, stages=stages)) is lacking
    assert bool(demands(release, "--enable-dbo", "-pp", str(stages)).v1) is lacking


@pytest.mark.needs_release("0.29")
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, ()),
        ({"method": "dspark"}, ("-sc.method", "dspark")),
        ({"method": "mtp", "enable_adaptive_verification": True}, ("-sc", '{"enable_adaptive_verification": true}')),
        ({"sharded": True}, ("--enable-batch-sharded-sampling",)),
        ({"contexts": 2}, ("--prefill-context-parallel-size", "2")),
        pytest.param(
            {"stages": 2, "asynchronous": True},
            ("-pp", "2", "--async-scheduling"),
            marks=pytest.mark.needs_release("0.31"),
        ),
    ],
)
def test_what_v1_refuses_is_refused_for_the_doctor_and_the_engine(
    settings: dict[str, Any], options: tuple[str, ...], release: Release | None
) -> None:
    assert bool(refused_by_v1(**settings)) is bool(settings)
    assert bool(demands(release, *options).only_v2) is bool(settings)


@pytest.mark.needs_release("0.29")
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


def demands(release: Release | None, *options: str) -> Demands:
    """Return the doctor's reading of a command."""
    return read_command(("vllm", "serve", *options)).demands(release)


def unsupported(
    *,
    cache: str = "none",
    experts: bool = False,
    compiled: int = 0,
    sequences: bool = False,
    ranks: int = 1,
    overlap: bool = False,
    stages: int = 1,
    **draft: Any,
) -> list[str]:
    """vLLM's message about features that V2 lacks, for these drafts and other settings."""
    config = importlib.import_module("vllm.config").VllmConfig
    speculative = SimpleNamespace(**{"parallel_drafting": False, "use_heterogeneous_vocab": False, **draft})
    parallel = SimpleNamespace(
        distributed_executor_backend=None,
        pipeline_parallel_size=stages,
        tensor_parallel_size=ranks,
        decode_context_parallel_size=1,
        prefill_context_parallel_size=1,
        use_ubatching=overlap,
        enable_elastic_ep=experts,
    )
    passes = SimpleNamespace(enable_sp=sequences)
    asked = SimpleNamespace(
        speculative_config=speculative if draft else None,
        parallel_config=parallel,
        compilation_config=SimpleNamespace(mode=compiled, pass_config=passes, cudagraph_mode=None),
        cache_config=SimpleNamespace(mamba_cache_mode=cache),
        model_config=None,
        lora_config=None,
        is_mm_encoder_only=False,
    )
    asked._get_dbo_unsupported_features = lambda: config._get_dbo_unsupported_features(asked)
    found: list[str] = config._get_v2_model_runner_unsupported_features(asked)
    return found


def refused_by_v1(
    *, sharded: bool = False, contexts: int = 1, stages: int = 1, asynchronous: bool = False, **draft: Any
) -> list[str]:
    """vLLM's message about features that V1 lacks, for these drafts and other settings."""
    config = importlib.import_module("vllm.config").VllmConfig
    asked = SimpleNamespace(
        speculative_config=SimpleNamespace(**{"enable_adaptive_verification": False, **draft}) if draft else None,
        parallel_config=SimpleNamespace(
            prefill_context_parallel_size=contexts,
            pipeline_parallel_size=stages,
            enable_batch_sharded_sampling=sharded,
        ),
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous),
        model_config=None,
    )
    for name in ("_dflash_needs_multi_kv_group", "_is_dflash2_draft", "_is_dflash_candidate_draft"):
        setattr(asked, name, lambda: False)
    found: list[str] = config._get_v1_model_runner_unsupported_features(asked)
    return found
