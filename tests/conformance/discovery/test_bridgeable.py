"""``lpkit new --wrap`` judges a target by its source, or else imports it in a child process."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from lpkit_conformance.discovery import bridgeable
from lpkit_conformance.discovery.bridgeable import find, keys_read
from lpkit_conformance.errors import NotBridgeableError

OBJECTS = """
    class Objects:
        def __init__(self, tokenizer, strength: float, token_ids: list[int], names=None, *, last: bool = True):
            pass

        def __call__(self, prompt_ids, output_ids, logits):
            return logits

    class OfEncoder:
        def __init__(self, encoder_input_ids):
            pass

        def __call__(self, prompt_ids, output_ids, logits):
            return logits
"""

OLD = """
    raise RuntimeError("imported")  # source tells: nothing of this is run
    from vllm.v1.sample.logits_processor import LogitsProcessor
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as V2
    import lpkit

    class Old(LogitsProcessor):
        def update_state(self, batch_update):
            args = self.params.extra_args or {}
            return args.get("one"), (self.params.extra_args or {})["two"], "three" in self.params.extra_args

    class Outer:
        class Inner(Old):
            pass

    class Both(lpkit.LogitsProcessor):
        pass

    class OnlyV2(V2):
        pass

    class Neither:
        def process(self, output_ids, logits):
            return logits

    def two(output_ids, logits, *, scale=1.0):
        return logits

    def three(prompt_ids, output_ids, logits):
        return logits

    def factory(params):
        return two if (params.extra_args or {}).get("on") else None

    def four(a, b, c, d):
        pass
"""

DYNAMIC = """
    import functools
    from vllm.v1.sample.logits_processor import LogitsProcessor

    def decorated(function):
        return function

    @decorated
    def two(output_ids, logits):
        return logits

    def shift(amount, output_ids, logits):
        return logits + amount

    bound = functools.partial(shift, 2.0)
    Made = type("Made", (LogitsProcessor,), {})
    Plain = type("Plain", (), {})
    number = 7

    def rest(*arguments):
        pass
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "old_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "old.py").write_text(dedent(OLD))
    (package / "dynamic.py").write_text(dedent(DYNAMIC))
    (package / "raises.py").write_text("made = type('X', (), {})\n1 / 0\n")
    (package / "objects.py").write_text(dedent(OBJECTS), encoding="utf-8")
    (package / "exits.py").write_text("import os\nmade = type('X', (), {})\nos._exit(3)\n")
    (package / "hangs.py").write_text("import time\nmade = type('X', (), {})\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Old", "class"), ("Outer.Inner", "class"), ("two", "callable"), ("three", "callable"), ("factory", "factory")],
)
def test_source_tells_without_an_import(name: str, kind: str) -> None:
    found = find(f"old_package.old:{name}")
    assert (found.module, found.name, found.kind) == ("old_package.old", name, kind)
    assert "old_package.old" not in sys.modules
    assert (found.distributions, found.entry_points) == ((), ())


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("old_package.old:Both", "runs on both of vLLM's runners already: there is nothing to wrap"),
        ("old_package.old:OnlyV2", "implements only vLLM's V2 interface"),
        ("old_package.old:Neither", "through a factory: def make"),
        ("old_package.old:four", "takes 4 positional arguments; what can be bridged takes"),
        ("old_package.old:Odl", "did you mean 'Old'"),
        ("old_package.odl:Old", "there is no module 'old_package.odl'"),
        ("old_package.old.Old", "Write old_package.old:Old"),
        ("old_package/old.py:Old", "is not of the form module:Class"),
        ("no_such_package:X", "there is no module 'no_such_package'"),
        ("lpkit.v1:LogitsProcessor", "is the interface itself"),
    ],
)
def test_what_cannot_be_wrapped_is_named_without_an_import(
    target: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridgeable, "_imported", lambda target: pytest.fail(f"imported {target}"))
    with pytest.raises(NotBridgeableError) as caught:
        find(target)
    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "kind"), [("two", "callable"), ("bound", "callable"), ("Made", "class")])
def test_what_source_does_not_tell_is_imported_in_a_child_without_needing_vllm(name: str, kind: str) -> None:
    assert find(f"old_package.dynamic:{name}").kind == kind
    assert "old_package.dynamic" not in sys.modules


def test_arguments_of_a_class_of_callables_are_those_that_requests_can_bring() -> None:
    found = find("old_package.objects:Objects")
    assert (found.kind, found.keys) == ("objects", ("strength", "token_ids", "last"))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("old_package.objects:OfEncoder", "vLLM shows a processor no encoder's input"),
        ("old_package.dynamic:Plain", "through a factory"),
        ("old_package.dynamic:rest", "cannot be bridged: cannot tell what rest takes: it has *arguments"),
        ("old_package.raises:made", "ZeroDivisionError"),
        ("old_package.exits:made", "ended the process with exit code 3"),
    ],
)
def test_what_an_import_shows_not_to_be_one_is_told(target: str, message: str) -> None:
    with pytest.raises(NotBridgeableError) as caught:
        find(target)
    assert message in str(caught.value)


def test_modules_of_the_current_folder_do_not_replace_the_librarys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "json.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert find("old_package.dynamic:bound").kind == "callable"


def test_an_import_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridgeable, "TIME_LIMIT", 0.5)
    with pytest.raises(NotBridgeableError, match=r"took longer than 0\.5 s"):
        find("old_package.hangs:made")


def test_keys_are_those_that_the_target_reads_from_extra_args() -> None:
    assert find("old_package.old:Old").keys == ("one", "two", "three")
    assert find("old_package.old:factory").keys == ("on",)


def test_keys_may_be_constants_of_the_module_and_stand_in_its_helpers() -> None:
    source = """
        KEY = "mine"
        def helper(params):
            return params.extra_args.get(KEY)
        class Old:
            def enter(self, params):
                return helper(params), self.cache.get("other"), params.logit_bias["x"]
    """
    assert keys_read(ast.parse(dedent(source)), "Old") == ("mine",)
