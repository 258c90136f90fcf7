"""Compares the inventory and the static reader with vLLM's two loaders and its modules."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from lpkit import loading
from lpkit_conformance.discovery.installed import take_inventory
from lpkit_conformance.discovery.interfaces import KNOWN
from site_folder import Site

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

PLUGIN = """
from vllm.v1.sample.logits_processor import LogitsProcessor as V1
from lpkit.v2 import LogitsProcessor as V2

class OnlyV1(V1):
    def __init__(self, vllm_config, device, is_pin_memory): pass
    def apply(self, logits): return logits
    def is_argmax_invariant(self): return True
    def update_state(self, batch_update): pass

class OnlyV2(V2):
    def apply(self, logits, ctx): return logits

class Both(V1, V2):
    def __init__(self, *arguments): pass
    def apply(self, logits, ctx=None): return logits
    def is_argmax_invariant(self): return False
    def update_state(self, batch_update): pass

class Outer:
    class Inner(Both): pass

class Neither: pass
def function(*arguments): return Both(*arguments)
"""


def vllms_loader(runner: str) -> Callable[[list[Any]], list[Any]]:
    if runner == "v1":
        return importlib.import_module("vllm.v1.sample.logits_processor")._load_custom_logitsprocs  # type: ignore[no-any-return]
    return importlib.import_module("vllm.v1.worker.gpu.sample.logits_processor.loader")._load_v2_logitsprocs  # type: ignore[no-any-return]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "engine_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "engine_plugin", raising=False)
    return tmp_path


def starts(runner: str) -> bool:
    """vLLM's own loader takes the installed processors, and its constructor call succeeds."""
    arguments = (None, None, False) if runner == "v1" else (None, None)
    try:
        for cls in vllms_loader(runner)([]):
            cls(*arguments)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("runner", ["v1", "v2"])
@pytest.mark.parametrize("target", ["Both", "OnlyV1", "OnlyV2", "Missing", "Outer.Inner", "Neither", "function"])
def test_the_inventory_predicts_whether_vllm_starts(site: Path, target: str, runner: Literal["v1", "v2"]) -> None:
    Site(site).dist("engine_dist", entry_points=f"it = engine_plugin:{target}")
    predicted = take_inventory().starts(runner)
    # V1 accepts what is not a class, or not one of its own kind, unchecked: that prediction is "not known".
    if predicted is None:
        assert (runner, target) in {("v1", "Neither"), ("v1", "function")}
    else:
        assert predicted == starts(runner)


MODELS = "vllm.model_executor.models."


@pytest.mark.needs_release("0.31")
def test_the_table_of_known_bases_matches_vllm() -> None:
    for module, names in KNOWN.items():
        if module.startswith("vllm") and not module.startswith(MODELS):
            for name, interfaces in names.items():
                found = getattr(importlib.import_module(module), name)
                assert loading.interfaces_of(found) == interfaces, f"{module}.{name}"


@pytest.mark.parametrize("module", [module for module in KNOWN if module.startswith(MODELS)])
def test_processors_of_vllms_models_are_where_the_table_says(module: str) -> None:
    """Read, not imported: the models need torchvision. ``test_same_as_vllms_ngram`` holds which interface theirs is."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    named = {
        getattr(item, "name", None)
        for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
        for item in (node.names if isinstance(node, ast.ImportFrom) else [node])
    }
    assert KNOWN[module].keys() <= named


def test_the_installed_engine_and_its_runner_are_recognised() -> None:
    from vllm.triton_utils import HAS_TRITON  # type: ignore[import-not-found]

    engine = take_inventory().engine
    assert engine is not None
    assert engine.version == importlib.import_module("vllm").__version__
    if "VLLM_USE_V2_MODEL_RUNNER" not in os.environ:
        assert engine.runner == ("v2" if HAS_TRITON else "v1")


def test_the_group_is_vllms() -> None:
    assert importlib.import_module("vllm.v1.sample.logits_processor").LOGITSPROCS_GROUP == loading.GROUP
