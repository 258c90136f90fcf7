"""The stand-in for vLLM and the configuration, name by name and parameter by parameter, against the installed vLLM."""

from __future__ import annotations

import importlib
import inspect
import json
import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from lpkit.interfaces import config as config_module
from lpkit.interfaces.config import ConfigPart, ModelConfig
from lpkit.runtime import V2Engine, make_config
from lpkit_conformance.engine import model
from lpkit_conformance.vllm_api import stub
from pydantic.fields import FieldInfo

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

OWN = ("__version__", "__lpkit_standin__")
CONTENTS = {name: members for name, members in stub.contents().items() if name != stub.EARLIER}


def _since(module: str) -> Any:
    v2 = module.startswith("vllm.v1.worker.gpu.sample")
    return pytest.param(module, marks=pytest.mark.needs_release("0.31")) if v2 else module


@pytest.mark.parametrize("module", [_since(module) for module in CONTENTS])
def test_every_name_of_the_stand_in_is_vllms(module: str) -> None:
    theirs = importlib.import_module(module)
    assert [name for name in CONTENTS[module] if name not in OWN and not hasattr(theirs, name)] == []


def parameters(function: Any) -> list[tuple[str, Any]]:
    return [(name, parameter.kind) for name, parameter in inspect.signature(function).parameters.items()]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        # Before 0.30 it has no ``out``.
        pytest.param("vllm.utils.torch_utils", "async_tensor_h2d", marks=pytest.mark.needs_release("0.30")),
        ("vllm.utils.gpu_sync_debug", "gpu_sync_allowed"),
        ("vllm.tokenizers", "get_tokenizer"),
        ("vllm.tokenizers", "cached_tokenizer_from_config"),
        ("vllm.logger", "init_logger"),
        ("vllm.v1.sample.logits_processor", "_load_custom_logitsprocs"),
    ],
)
def test_functions_have_vllms_parameters_in_vllms_order(module: str, name: str) -> None:
    theirs = getattr(importlib.import_module(module), name)
    assert parameters(CONTENTS[module][name]) == parameters(theirs)


def test_loggers_have_vllms_methods() -> None:
    theirs = importlib.import_module("vllm.logger").init_logger("theirs")
    ours = CONTENTS["vllm.logger"]["init_logger"]("ours")
    assert {name for name in vars(theirs) if name.endswith("_once")} <= set(dir(ours))


def test_every_field_of_the_configuration_is_vllms() -> None:
    from vllm.config import VllmConfig

    config, theirs = make_config(), {item.name: item for item in fields(VllmConfig)}
    for part in fields(config):
        assert part.name in theirs
    for name, cls in (("model_config", "ModelConfig"), ("scheduler_config", "SchedulerConfig")):
        vllms = getattr(importlib.import_module("vllm.config"), cls)
        known = {item.name for item in fields(vllms)} | set(dir(vllms))
        ours = {item.name for item in fields(getattr(config, name))}
        # What get_vocab_size() returns, what vLLM works out later, and where a host puts a tokenizer of its own.
        assert ours - known <= {"vocab_size", "runner_type", "lpkit_tokenizer"}


def _plain(value: Any) -> bool:
    """Return True for what JSON holds."""
    if type(value) in (dict, list):
        return all(map(_plain, value.values() if type(value) is dict else value))
    return type(value) in (int, float, str, bool, type(None))


def _as_declared(theirs: Any, name: str) -> bool:
    """Return True if a field has its default, which depends on no other setting and no machine."""
    item = {item.name: item for item in fields(theirs)}[name]
    default = item.default_factory() if item.default_factory is not MISSING else item.default
    if isinstance(default, FieldInfo):
        default = default.get_default(call_default_factory=True)
    return bool(default == getattr(theirs, name))


def _further(ours: Any, theirs: Any) -> dict[str, Any]:
    """Return the contents of ``config.json`` for a part of the configuration."""
    declared = {item.name for item in fields(theirs)}
    names = (declared | set(dir(theirs))) - {item.name for item in fields(ours)} - set(dir(type(ours)))
    values: dict[str, Any] = {}
    for name in sorted(name for name in names if not name.startswith("_")):
        if name in declared:
            is_constant = _as_declared(theirs, name)
        else:  # a model's answers do not change with the other parts of the configuration
            is_constant = isinstance(ours, ModelConfig) or _plain(inspect.getattr_static(type(theirs), name))
        if is_constant and _plain(value := getattr(theirs, name)):
            values[name] = value
    return {"values": values, "others": sorted(name for name in names - {*values} if not name.startswith("_"))}


@pytest.mark.needs_release("0.32")
def test_the_further_names_of_the_configuration_are_vllms(tmp_path: Path) -> None:
    from vllm import config as vllms

    model.write(tmp_path, 512, 256)
    config: Any = vllms.VllmConfig(model_config=vllms.ModelConfig(model=str(tmp_path)))
    drafts: Any = vllms.SpeculativeConfig(num_speculative_tokens=3, method="ngram")
    theirs = {type(part).__name__: part for part in (*vars(config).values(), drafts)} | {"Config": config}
    ours = make_config()
    ours.speculate(3)
    parts = {type(part).__name__: part for part in (ours, *vars(ours).values()) if isinstance(part, ConfigPart)}
    further = {name: _further(part, theirs[name]) for name, part in parts.items()}
    file = Path(config_module.__file__).with_suffix(".json")
    if os.environ.get("LPKIT_GOLDEN") == "write":
        file.write_text(json.dumps(further, indent=1) + "\n", encoding="utf-8")
    assert json.loads(file.read_text(encoding="utf-8")) == further


@pytest.mark.parametrize("given", [{}, {"num_key_value_heads": 1, "sliding_window": 128}], ids=["tiny", "windows"])
def test_the_model_configuration_answers_as_vllms_does_for_the_tiny_model(
    given: dict[str, Any], tmp_path: Path
) -> None:
    from vllm.config import ModelConfig

    model.write(tmp_path, 512, 256)
    theirs: Any = ModelConfig(model=str(tmp_path), skip_tokenizer_init=True, max_model_len=256, hf_overrides=given)
    ours = make_config(vocab_size=512, max_model_len=256, hf_config=given).model_config
    for method in ("get_vocab_size", "get_sliding_window", "get_total_num_kv_heads"):
        assert getattr(ours, method)() == getattr(theirs, method)(), method
    assert ours.hf_text_config.num_attention_heads == theirs.hf_text_config.num_attention_heads


@pytest.mark.needs_release("0.32")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_configuration_of_drafts_says_what_vllms_does(asynchronous: bool) -> None:
    from vllm.config import SpeculativeConfig

    engine = V2Engine(device="cpu", num_speculative_tokens=3, async_scheduling=asynchronous)
    ours = engine.config.speculative_config
    assert ours is not None
    theirs = SpeculativeConfig(num_speculative_tokens=3, method=ours.method)
    for field in fields(ours):
        assert getattr(ours, field.name) == getattr(theirs, field.name), field.name
    for name in ("use_eagle", "use_ngram", "use_ngram_gpu", "uses_draft_model"):
        assert getattr(ours, name)() == getattr(theirs, name)(), name
    assert {name for name in vars(type(ours)) if not name.startswith("_")} <= set(dir(theirs))
