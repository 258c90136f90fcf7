"""``lpkit.loading`` against vLLM's two loaders: the same classes in the same order, or the same kind of error."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from lpkit import loading
from lpkit_conformance.discovery.installed import take_inventory
from lpkit_conformance.discovery.interfaces import KNOWN

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
    (tmp_path / "engine_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "engine_plugin", raising=False)
    return tmp_path


def install(site: Path, entry_points: str, name: str = "engine_dist", version: int = 1) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{loading.GROUP}]\n{entry_points}\n")


def outcome(load: Callable[..., list[Any]], *arguments: Any) -> Any:
    try:
        return load(*arguments)
    except Exception as error:
        return next(kind for kind in (ValueError, RuntimeError, AttributeError, TypeError) if isinstance(error, kind))


MODULES = ["engine_plugin"] * 8 + ["engine_gone", "engine_broken", "engine_plugin.sub", "", " engine_plugin"]
NAMES = ["Both"] * 6 + ["OnlyV1", "OnlyV2", "Outer.Inner"] * 3
NAMES += ["Neither", "function", "Missing", "Outer.Missing", "Outer", "", "Both.apply", "Both:x", " Both", "Both "]


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_random_installations_and_arguments_load_or_fail_alike(
    site: Path, runner: loading.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entry points of several distributions, some of one name, and lists of strings, classes and other objects."""
    rng = random.Random(runner)
    plugin = importlib.import_module("engine_plugin")
    objects = [plugin.Both, plugin.OnlyV1, plugin.OnlyV2, plugin.Neither, plugin.Outer.Inner]
    vllms_loader(runner)([])  # what it imports on the way
    paths = [path for path in sys.path if not path.endswith("site-packages")]  # or every trial reads all of those
    seen: Counter[str] = Counter()
    for trial in range(5_000):
        folder = site / f"trial{trial}"
        folder.mkdir()
        for number in range(rng.choice([0, 0, 1, 1, 2, 3])):
            lines = [f"e{rng.randrange(4)} = {target(rng)}" for _ in range(rng.randint(1, 2))]
            install(folder, "\n".join(lines), f"engine_dist{rng.randrange(3)}", number)
        monkeypatch.setattr(sys, "path", [str(folder), *paths])
        specs = [rng.choice(objects) if rng.random() < 0.3 else target(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        theirs = outcome(vllms_loader(runner), specs)
        ours = outcome(loading.load_all, specs, runner)
        if theirs != ours and any(isinstance(spec, str) and half(spec) for spec in specs):
            # vLLM fails over it only where it uses the missing half.
            assert ours is ValueError and isinstance(theirs, type)
            theirs = ours
        assert ours == theirs, (specs, loading.installed())
        seen[theirs.__name__ if isinstance(theirs, type) else "loaded"] += 1
    assert min(seen[kind] for kind in ("loaded", "ValueError", "RuntimeError", "AttributeError")) >= 25, seen


def half(spec: str) -> bool:
    return not all(spec.split(":"))


def target(rng: random.Random) -> str:
    return f"{rng.choice(MODULES)}:{rng.choice(NAMES)}" if rng.random() < 0.97 else "engine_plugin.Both"


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
    install(site, f"it = engine_plugin:{target}")
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
