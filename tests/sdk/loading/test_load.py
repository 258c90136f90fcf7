"""``lpkit.loading``: vLLM's order and rules per runner, and errors that name the mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lpkit import loading
from lpkit.loading import (
    ConstructionError,
    ImportFailedError,
    InvalidTargetError,
    LoadError,
    MissingAttributeError,
    WrongInterfaceError,
)

Install = Callable[..., None]


def names(classes: list[type[Any]]) -> list[str]:
    return [cls.__qualname__ for cls in classes]


class TestOrderAndRules:
    def test_entry_points_come_first_then_what_was_passed_and_nothing_is_dropped(self, install: Install) -> None:
        install("a-dist", both="lp_plugin:Both", nested="lp_plugin:Outer.Inner")
        from lp_plugin import Both  # type: ignore[import-not-found]

        found = loading.load_all(["lp_plugin:Both", Both], "v2")
        assert names(found) == ["Both", "Outer.Inner", "Both", "Both"]

    def test_a_distribution_seen_twice_counts_once(self, install: Install, tmp_path: Path, site: Path) -> None:
        other = tmp_path / "editable"
        other.mkdir()
        sys.path.append(str(other))
        install("twice", "2.0", both="lp_plugin:Both")
        install("twice", "1.0", folder=other, both="lp_plugin:Both")
        assert len(loading.load_entry_points("v2")) == 1

    def test_v1_does_not_check_entry_points(self, install: Install) -> None:
        install("a-dist", v2="lp_plugin:OnlyV2", function="lp_plugin:make")
        assert len(loading.load_entry_points("v1")) == 2

    def test_v2_checks_entry_points(self, install: Install) -> None:
        install("a-dist", "3.1", old="lp_plugin:OnlyV1")
        with pytest.raises(WrongInterfaceError, match=r"'old' \(lp_plugin:OnlyV1, a-dist 3\.1\) implements only") as e:
            loading.load_entry_points("v2")
        assert "lpkit.LogitsProcessor" in e.value.remedy
        assert "VLLM_USE_V2_MODEL_RUNNER=0" in e.value.remedy

    def test_both_runners_check_what_was_passed(self, site: Path) -> None:
        from lp_plugin import OnlyV1

        with pytest.raises(WrongInterfaceError, match="vLLM's V2 interface; the V1 runner refuses"):
            loading.load_explicit(["lp_plugin:OnlyV2"], "v1")
        with pytest.raises(WrongInterfaceError, match="vLLM's V1 interface; the V2 runner"):
            loading.load_explicit([OnlyV1], "v2")
        assert names(loading.load_explicit([OnlyV1, "lp_plugin:Both"], "v1")) == ["OnlyV1", "Both"]

    def test_nothing_passed_is_nothing_loaded(self) -> None:
        assert loading.load_explicit(None, "v1") == loading.load_explicit([], "v2") == []


class TestBuild:
    def test_each_runner_calls_its_own_constructor(self, install: Install) -> None:
        install("a-dist", both="lp_plugin:Both")
        v1 = loading.build(["lp_plugin:OnlyV1"], "v1", "config", "cpu", False)
        assert [item.arguments for item in v1] == [("config", "cpu", False)] * 2
        v2 = loading.build(["lp_plugin:OnlyV2"], "v2", "config", "states")
        assert [item.arguments for item in v2] == [("config", "states")] * 2

    def test_an_installed_v2_class_dies_on_v1_with_an_explained_type_error(self, install: Install) -> None:
        install("a-dist", new="lp_plugin:OnlyV2")
        with pytest.raises(TypeError, match=r"OnlyV2 implements only vLLM's V2 interface.*is_pin_memory") as e:
            loading.build([], "v1", "config", "cpu", False)
        assert isinstance(e.value, ConstructionError)

    def test_a_type_error_of_the_plugins_own_is_left_alone(self, site: Path) -> None:
        (site / "lp_own.py").write_text("from lp_plugin import Both\nclass Bad(Both):\n    def __init__(self): pass\n")
        with pytest.raises(TypeError) as e:
            loading.build(["lp_own:Bad"], "v2", "config", "states")
        assert not isinstance(e.value, LoadError)

    def test_speculative_decoding_on_v1_refuses_passed_and_skips_installed(self, install: Install) -> None:
        install("a-dist", both="lp_plugin:Both")
        config = SimpleNamespace(speculative_config=object())
        assert loading.build([], "v1", config, "cpu", False) == []
        with pytest.raises(ValueError, match="speculative"):
            loading.build(["lp_plugin:Both"], "v1", config, "cpu", False)
        assert len(loading.build(["lp_plugin:Both"], "v2", config, "states")) == 2

    @pytest.mark.parametrize("runner", ["v1", "v2"])
    def test_pooling_models_refuse_passed_and_skip_installed(self, install: Install, runner: Any) -> None:
        install("a-dist", both="lp_plugin:Both")
        assert loading.build([], runner, "config", "cpu", False, pooling=True) == []
        with pytest.raises(loading.InvalidTargetError, match="pooling models"):
            loading.build(["lp_plugin:Both"], runner, "config", "cpu", False, pooling=True)

    def test_a_tpu_loads_nothing_without_a_word(self, install: Install) -> None:
        install("a-dist", both="lp_plugin:Both")
        assert loading.build(["lp_plugin:Both"], "v1", "config", "cpu", False, tpu=True) == []


class TestMistakes:
    @pytest.mark.parametrize(
        ("spec", "hint"),
        [
            ("lp_plugin.Both", "Write lp_plugin:Both"),
            ("lp_plugin.Outer.Inner", "Write lp_plugin:Outer.Inner"),
            ("a.b.c:D:E", "Write a.b.c:D.E"),
            ("a::B", "Write a:B"),
            ("dir/lp_plugin.py:Both", "put dir on PYTHONPATH and write lp_plugin:Both"),
            ("Both", "Write the module, a colon and the class"),
            (":Both", "Write the module"),
            ("", "Write the module"),
        ],
    )
    def test_a_malformed_name_is_corrected(self, spec: str, hint: str) -> None:
        with pytest.raises(InvalidTargetError, match="module:Class") as e:
            loading.load_explicit([spec], "v1")
        assert isinstance(e.value, ValueError)
        assert hint in e.value.remedy

    def test_an_instance_that_was_passed_is_told_to_be_a_class(self, site: Path) -> None:
        from lp_plugin import instance

        with pytest.raises(InvalidTargetError, match=r"OnlyV1 object was passed.*Pass the class: lp_plugin:OnlyV1"):
            loading.load_explicit([instance], "v1")

    @pytest.mark.parametrize(
        ("name", "what", "hint"),
        [
            ("make", "a function, not a class", "name a class"),
            ("instance", "an instance of lp_plugin.OnlyV1", "Name its class: lp_plugin:OnlyV1"),
            ("part", "a functools.partial", "name a class"),
            ("functools", "a module", "name a class"),
        ],
    )
    def test_what_is_not_a_class_is_named(self, site: Path, name: str, what: str, hint: str) -> None:
        with pytest.raises(ValueError, match=what) as e:
            loading.load_explicit([f"lp_plugin:{name}"], "v1")
        assert isinstance(e.value, WrongInterfaceError)
        assert hint in e.value.remedy

    def test_a_class_without_an_interface_is_told_of_its_namesake(self, site: Path) -> None:
        with pytest.raises(WrongInterfaceError, match=r"neither.*its base lp_plugin:LogitsProcessor is something else"):
            loading.load_explicit(["lp_plugin:Namesake"], "v1")

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("OnlyV3", "Did you mean 'OnlyV"),
            ("BOTH", "Did you mean 'Both'?"),
            ("Outer.Iner", "Did you mean 'Inner'?"),
            ("Zzz", "Classes defined there: Both, LogitsProcessor, Namesake, OnlyV1, OnlyV2, Outer"),
        ],
    )
    def test_a_missing_class_brings_the_nearest_match(self, site: Path, name: str, hint: str) -> None:
        with pytest.raises(AttributeError, match="has no attribute") as e:
            loading.load_explicit([f"lp_plugin:{name}"], "v1")
        assert isinstance(e.value, MissingAttributeError)
        assert hint in e.value.remedy

    def test_a_missing_module_is_named_with_its_nearest_sibling(self, site: Path) -> None:
        (site / "lp_pkg").mkdir()
        (site / "lp_pkg" / "__init__.py").touch()
        (site / "lp_pkg" / "processor.py").touch()
        with pytest.raises(ImportFailedError, match=r"no module 'lp_pkg\.procesor'.*mean 'processor'"):
            loading.load_explicit(["lp_pkg.procesor:P"], "v1")

    def test_a_class_before_the_colon_is_noticed(self, site: Path) -> None:
        with pytest.raises(ImportFailedError, match="'Outer' is an attribute of 'lp_plugin': the colon goes before it"):
            loading.load_explicit(["lp_plugin.Outer:Inner"], "v1")

    def test_a_module_of_the_current_folder_is_told_to_be_made_importable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lp_here.py").touch()
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ImportFailedError, match="PYTHONPATH"):
            loading.load_explicit(["lp_here:P"], "v1")

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ("1 / 0", r"importing lp_bad failed at .*lp_bad\.py:2: ZeroDivisionError: division by zero"),
            ("import lp_not_there", r"No module named 'lp_not_there'\. Install .* 'lp_not_there'"),
            ("raise SystemExit(3)", "SystemExit: 3"),
            ("def f(:", r"importing lp_bad failed at .*lp_bad\.py:2: SyntaxError"),
            ("raise RuntimeError('No CUDA GPUs are available')", "not at import"),
        ],
    )
    def test_an_import_error_brings_its_cause_and_line(self, site: Path, body: str, text: str) -> None:
        (site / "lp_bad.py").write_text(f"import os\n{body}\n")
        with pytest.raises(RuntimeError, match=text) as e:
            loading.load_explicit(["lp_bad:P"], "v1")
        assert isinstance(e.value, ImportFailedError)
        assert e.value.__cause__ is not None

    def test_a_lazy_module_that_fails_on_access_is_an_import_error(self, site: Path) -> None:
        (site / "lp_lazy.py").write_text("def __getattr__(name):\n    import lp_not_there\n")
        with pytest.raises(ImportFailedError, match="lp_not_there"):
            loading.load_explicit(["lp_lazy:P"], "v1")

    @pytest.mark.parametrize("value", ["lp_plugin:Missing", "lp_gone:P", "not a target!"])
    @pytest.mark.parametrize("runner", ["v1", "v2"])
    def test_an_installed_plugin_that_does_not_load_is_a_runtime_error(
        self, install: Install, value: str, runner: loading.Runner
    ) -> None:
        install("a-dist", "0.3", broken=value)
        with pytest.raises(RuntimeError, match=r"installed plugin 'broken' \(.*a-dist 0\.3\) does not load"):
            loading.load_entry_points(runner)

    def test_an_interrupt_is_not_swallowed(self, site: Path) -> None:
        (site / "lp_slow.py").write_text("raise KeyboardInterrupt\n")
        with pytest.raises(KeyboardInterrupt):
            loading.load_explicit(["lp_slow:P"], "v1")


class TestHiddenCuda:
    @pytest.mark.parametrize("before", [None, "0,1"])
    def test_cuda_is_hidden_during_the_import_and_restored(
        self, site: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
    ) -> None:
        if before is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
        (site / "lp_cuda.py").write_text(
            "import os\nfrom lp_plugin import Both\nclass P(Both): seen = os.environ['CUDA_VISIBLE_DEVICES']\n"
        )
        (cls,) = loading.load_explicit(["lp_cuda:P"], "v1")
        assert cls.seen == ""  # type: ignore[attr-defined]
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == before

    def test_it_is_restored_after_a_failure(self, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        with pytest.raises(LoadError):
            loading.load_explicit(["lp_gone:P"], "v1")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_interfaces_of_anything_but_a_processor_class_is_empty(site: Path) -> None:
    from lp_plugin import Both, OnlyV1, OnlyV2, instance

    assert loading.interfaces_of(Both) == {"v1", "v2"}
    assert loading.interfaces_of(OnlyV1) == {"v1"}
    assert loading.interfaces_of(OnlyV2) == {"v2"}
    assert loading.interfaces_of(int) == loading.interfaces_of(instance) == loading.interfaces_of(None) == frozenset()


def test_importing_the_loader_imports_neither_torch_nor_vllm() -> None:
    code = "import sys, lpkit.loading; print({'torch', 'vllm'} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "set()"


def test_errors_survive_pickling() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(ImportFailedError("a", "b")))
    assert (type(error), error.problem, error.remedy) == (ImportFailedError, "a", "b")
