"""``lpkit.loading``: entry points, and errors that name the mistake."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lpkit import loading
from lpkit.loading import (
    ImportFailedError,
    InvalidTargetError,
    LoadError,
    MissingAttributeError,
    WrongInterfaceError,
    resolve_target,
)

Install = Callable[..., None]


def test_a_distribution_seen_twice_counts_once(install: Install, tmp_path: Path, site: Path) -> None:
    other = tmp_path / "editable"
    other.mkdir()
    sys.path.append(str(other))
    install("twice", "2.0", both="lp_plugin:Both")
    install("twice", "1.0", folder=other, both="lp_plugin:Both")
    assert len(loading.installed()) == 1


def test_an_entry_point_may_name_anything(install: Install) -> None:
    install("a-dist", v2="lp_plugin:OnlyV2", function="lp_plugin:make")
    assert {loading.load_entry_point(entry).__name__ for entry in loading.installed()} == {"OnlyV2", "make"}


class TestMistakes:
    @pytest.mark.parametrize(
        ("spec", "hint"),
        [
            ("a.b.c:D:E", "Write a.b.c:D.E"),
            ("a::B", "Write a:B"),
            ("dir/lp_plugin:Both", "put dir on PYTHONPATH and write lp_plugin:Both"),
            (":Both", "Write the module"),
        ],
    )
    def test_a_malformed_name_is_corrected(self, spec: str, hint: str) -> None:
        with pytest.raises(InvalidTargetError, match="module:Class") as e:
            resolve_target(spec)
        assert isinstance(e.value, ValueError)
        assert hint in e.value.remedy

    def test_an_instance_that_was_passed_is_named_with_its_class(self, site: Path) -> None:
        from lp_plugin import instance

        with pytest.raises(InvalidTargetError, match=r"OnlyV1 object was passed.*Pass the class: lp_plugin:OnlyV1"):
            resolve_target(instance)

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
            resolve_target(f"lp_plugin:{name}")
        assert isinstance(e.value, WrongInterfaceError)
        assert hint in e.value.remedy

    def test_a_class_without_an_interface_is_reported_with_its_namesake(self, site: Path) -> None:
        with pytest.raises(WrongInterfaceError, match=r"neither.*its base lp_plugin:LogitsProcessor is something else"):
            resolve_target("lp_plugin:Namesake")

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
            resolve_target(f"lp_plugin:{name}")
        assert isinstance(e.value, MissingAttributeError)
        assert hint in e.value.remedy

    def test_a_missing_module_is_named_with_its_nearest_sibling(self, site: Path) -> None:
        (site / "lp_pkg").mkdir()
        (site / "lp_pkg" / "__init__.py").touch()
        (site / "lp_pkg" / "processor.py").touch()
        with pytest.raises(ImportFailedError, match=r"no module 'lp_pkg\.procesor'.*mean 'processor'"):
            resolve_target("lp_pkg.procesor:P")

    def test_a_class_before_the_colon_is_noticed(self, site: Path) -> None:
        with pytest.raises(ImportFailedError, match="'Outer' is an attribute of 'lp_plugin': the colon goes before it"):
            resolve_target("lp_plugin.Outer:Inner")

    def test_a_module_of_the_current_folder_is_reported_with_how_to_import_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lp_here.py").touch()
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ImportFailedError, match="PYTHONPATH"):
            resolve_target("lp_here:P")

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
            resolve_target("lp_bad:P")
        assert isinstance(e.value, ImportFailedError)
        assert e.value.__cause__ is not None

    def test_a_lazy_module_that_fails_on_access_is_an_import_error(self, site: Path) -> None:
        (site / "lp_lazy.py").write_text("def __getattr__(name):\n    import lp_not_there\n")
        with pytest.raises(ImportFailedError, match="lp_not_there"):
            resolve_target("lp_lazy:P")

    @pytest.mark.parametrize("value", ["lp_plugin:Missing", "lp_gone:P", "not a target!"])
    def test_an_installed_plugin_that_does_not_load_is_a_runtime_error(self, install: Install, value: str) -> None:
        install("a-dist", "0.3", broken=value)
        with pytest.raises(RuntimeError, match=r"installed plugin 'broken' \(.*a-dist 0\.3\) does not load"):
            loading.load_entry_point(*loading.installed())

    def test_an_interrupt_is_not_swallowed(self, site: Path) -> None:
        (site / "lp_slow.py").write_text("raise KeyboardInterrupt\n")
        with pytest.raises(KeyboardInterrupt):
            resolve_target("lp_slow:P")


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
        cls = resolve_target("lp_cuda:P")
        assert cls.seen == ""
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == before

    def test_it_is_restored_after_a_failure(self, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        with pytest.raises(LoadError):
            resolve_target("lp_gone:P")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_interfaces_of_anything_but_a_processor_class_is_empty(site: Path) -> None:
    from lp_plugin import Both, OnlyV1, OnlyV2, instance

    assert loading.interfaces_of(Both) == {"v1", "v2"}
    assert loading.interfaces_of(OnlyV1) == {"v1"}
    assert loading.interfaces_of(OnlyV2) == {"v2"}
    assert loading.interfaces_of(int) == loading.interfaces_of(instance) == loading.interfaces_of(None) == frozenset()


def test_errors_survive_pickling() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(ImportFailedError("a", "b")))
    assert (type(error), error.problem, error.remedy) == (ImportFailedError, "a", "b")
