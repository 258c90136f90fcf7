"""Plugins that import vLLM are checked where vLLM is absent or broken, and the verdict names the stand-in."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from lpkit.loading import LoadError, interfaces_of, resolve_target
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.suite.load_failures import load_failure
from lpkit_conformance.suite.supervisor import check_target
from lpkit_conformance.vllm_api import stub
from lpkit_conformance.vllm_api.choose import STANDIN, prepare, prepared
from zoo.correct.v1 import Bias

SUSPECTS = Path(__file__).parents[1] / "suspects"
PLAN = Plan(
    cases=(Case.parse({"extra_args": {"bias": 2.5}}),),
    select=("LP001", "LP201", "LP202", "LP206", "LP211", "LP301", "LP501", "LP804"),
    standin=True,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is not None, reason="needs an environment without vLLM"
)


@pytest.fixture
def installed() -> Iterator[None]:
    """The stand-in in this process."""
    with prepared():
        yield


@pytest.mark.parametrize(("name", "interfaces"), [("RawV1", {"v1"}), ("RawV2", {"v2"}), ("Wrapped", {"v1"})])
def test_processors_written_against_vllm_are_judged_without_it(installed, name: str, interfaces: set[str]) -> None:
    cls = resolve_target(f"{SUSPECTS / 'through_vllm.py'}:{name}")
    assert interfaces_of(cls) == interfaces
    found = list(Session(name, cls, PLAN).results())
    assert [check.label for check in found if check.status in ("failed", "error", "blocked")] == []
    assert "LP201" in [check.code for check in found if check.status == "passed"]


def test_the_stand_in_is_installed_once(installed) -> None:
    finders = list(sys.meta_path)
    modules = {name: module for name, module in sys.modules.items() if name.startswith("vllm")}
    assert prepare().startswith(STANDIN)
    stub.install()
    assert sys.meta_path == finders
    assert all(sys.modules[name] is module for name, module in modules.items())


def test_the_stand_in_is_there_for_a_while_only_and_the_same_every_time() -> None:
    seen = []
    for _ in range(2):
        with prepared():
            module = importlib.import_module("vllm.v1.sample.logits_processor")
            seen.append((module, module.AdapterLogitsProcessor))
            finders = len(sys.meta_path)
        assert not [name for name in sys.modules if name.partition(".")[0] == "vllm"]
        assert len(sys.meta_path) == finders - 1
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("vllm")
    assert seen[0] == seen[1]


def test_the_remains_of_a_broken_vllm_come_back_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    remains = ModuleType("vllm")
    monkeypatch.setitem(sys.modules, "vllm", remains)
    with prepared():
        assert sys.modules["vllm"] is not remains
    assert sys.modules["vllm"] is remains


def test_the_stand_in_knows_that_it_is_one(installed) -> None:
    import vllm

    assert stub.is_installed()
    assert vllm.__lpkit_standin__


def test_buffers_can_live_elsewhere(installed) -> None:
    import torch

    with stub.buffers_on(torch.device("meta")):
        assert stub.UvaBackedTensor(4, torch.float32).gpu.device.type == "meta"
    buffer = stub.UvaBackedTensor(4, torch.float32)
    buffer.np[2] = 7
    assert buffer.copy_to_uva(3).tolist() == [0, 0, 7]


def test_staged_writes_can_be_dropped(installed) -> None:
    import torch

    buffer = stub.StagedWriteTensor(4, torch.int32, torch.device("cpu"))
    buffer.stage_write_elem(1, 5)
    buffer.clear_staged_writes()
    buffer.stage_write_elem(2, 6)
    buffer.apply_write()
    assert buffer.gpu.tolist() == [0, 0, 6, 0]


@pytest.mark.parametrize(
    ("target", "missing"),
    [
        ("needs_more_of_vllm.py:NeedsMore", "vllm.model_executor"),
        ("needs_a_name_of_vllm.py:NeedsLLM", "vllm.AsyncLLMEngine"),
    ],
)
def test_what_the_stand_in_lacks_is_no_fault_of_the_plugin(installed, target: str, missing: str) -> None:
    with pytest.raises(LoadError) as caught:
        resolve_target(str(SUSPECTS / target))
    failure = load_failure(target, caught.value, True)
    assert not failure.broken
    assert str(failure) == f"{missing} is not in lpkit's stand-in for vLLM; install vLLM to check this plugin"


BROKEN = {
    "raises": ("raise OSError('libcudart.so.12: cannot open\\nshared object file')", "OSError: libcudart.so.12"),
    "lacks a module": ("", "No module named 'vllm.sampling_params'"),
}
"""Reasons by what a vLLM does when it is imported; one that ends the process is in ``suite/test_supervisor.py``."""


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_vllm_is_reported_and_the_stand_in_used(tmp_path, monkeypatch, how: str) -> None:
    source, reason = BROKEN[how]
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(source, encoding="utf-8")
    plan = Plan(cases=PLAN.cases, select=("LP201",))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    result = check_target(f"{SUSPECTS / 'through_vllm.py'}:RawV1", plan, [])
    assert result.verdict == "pass"
    if how == "lacks a module":
        assert result.judged_with.startswith(STANDIN)
    else:
        assert result.judged_with.startswith(f"{STANDIN} (the installed vLLM is broken: {reason}")
    assert "\n" not in result.judged_with


def test_the_command_itself_does_not_import_vllm(tmp_path) -> None:
    (tmp_path / "vllm.py").write_text("import os\nos._exit(9)\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *[entry for entry in sys.path if entry]])
    done = subprocess.run(
        [sys.executable, "-m", "lpkit_cli.app", "check", "x:Y", "--select", "LP9999"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no check LP9999" in done.stderr


@pytest.mark.filterwarnings("ignore")
def test_what_real_plugins_import_loads_and_a_tiny_tokenizer_with_it(installed) -> None:
    pytest.importorskip("transformers")
    cls = resolve_target(f"{SUSPECTS / 'loads_a_tokenizer.py'}:FindsItsToken")
    found = list(Session("tokenizer", cls, replace(PLAN, select=("LP101", "LP301", "LP201"))).results())
    assert [check.label for check in found if check.status != "passed"] == []


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("StartsAnEngine", "vllm.LLM"),
        ("ImportsMoreInItsConstructor", "vllm.distributed"),
        ("ReadsMoreInApply", "vllm.envs"),
    ],
)
def test_what_the_stand_in_lacks_is_no_failure_of_the_plugin_whenever_it_is_used(installed, name, what) -> None:
    cls = resolve_target(f"{SUSPECTS / 'loads_a_tokenizer.py'}:{name}")
    found = list(Session(name, cls, replace(PLAN, select=("LP301",))).results())
    assert not [check.label for check in found if check.status == "failed"]
    (error,) = [check.message for check in found if check.status == "error"]
    assert error == f"{what} is not in lpkit's stand-in for vLLM; install vLLM to check this plugin"


def test_what_lpkits_configuration_lacks_is_no_failure_of_the_plugin() -> None:
    class AsksForMore(Bias):
        def __init__(self, vllm_config: Any, *args: Any) -> None:
            super().__init__(vllm_config, *args)
            self.width = vllm_config.model_config.get_hidden_size()

    found = list(Session("asks", AsksForMore, replace(PLAN, select=("LP101",))).results())
    assert not [check.label for check in found if check.status == "failed"]
    (error,) = [check.message for check in found if check.status == "error"]
    assert error.startswith("lpkit's configuration lacks `get_hidden_size`, which vLLM's has: could not judge")


def test_copies_to_the_device_take_their_arguments_in_vllms_order(installed) -> None:
    from vllm.utils.torch_utils import async_tensor_h2d

    out = torch.zeros(2)
    assert async_tensor_h2d([1, 2], "cpu", torch.int32).dtype == torch.int32
    assert async_tensor_h2d([1, 2], out=out) is out and out.tolist() == [1.0, 2.0]
