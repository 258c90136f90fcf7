"""``lpkit new --wrap`` imports its target in a child process, and judges the object."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from textwrap import dedent

import pytest
from lpkit.loading import LoadError
from lpkit_conformance.discovery.bridgeable import Bridgeable, examined, find, keys_read
from lpkit_conformance.errors import NotBridgeableError
from lpkit_conformance.vllm_api.choose import prepared

OLD = """
    import functools
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

    def rest(*arguments):
        pass

    decorated_two = functools.wraps(two)(lambda *arguments: two(*arguments))
    bound = functools.partial(three, [1])
    Made = type("Made", (LogitsProcessor,), {})
    number = 7

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


EVERY_KEY = ("on", "one", "two", "three")
"""Keys in the module, for a target that reads none itself."""


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    package = tmp_path_factory.mktemp("site") / "old_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "old.py").write_text(dedent(OLD))
    (package / "other.py").write_text(dedent(OLD))
    (package / "raises.py").write_text("1 / 0\n")
    (package / "exits.py").write_text("import os\nos._exit(3)\n")
    (package / "hangs.py").write_text("import time\ntime.sleep(60)\n")
    with pytest.MonkeyPatch.context() as patch, prepared():
        patch.syspath_prepend(package.parent)
        yield
        for name in [name for name in sys.modules if name.partition(".")[0] == "old_package"]:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "kind", "keys"),
    [
        ("Old", "class", ("one", "two", "three")),
        ("Outer.Inner", "class", ("one", "two", "three")),
        ("two", "callable", EVERY_KEY),
        ("three", "callable", EVERY_KEY),
        ("decorated_two", "callable", EVERY_KEY),
        ("bound", "callable", EVERY_KEY),
        ("Made", "class", EVERY_KEY),
        ("factory", "factory", ("on",)),
        ("Objects", "objects", ("strength", "token_ids", "last")),
    ],
)
def test_each_kind_is_recognized_with_the_keys_that_it_reads(name: str, kind: str, keys: tuple[str, ...]) -> None:
    assert examined(f"old_package.old:{name}") == (kind, keys)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("old_package.old:Both", "runs on both of vLLM's runners already: there is nothing to wrap"),
        ("old_package.old:OnlyV2", "implements only vLLM's V2 interface"),
        ("old_package.old:Neither", "through a factory: def make"),
        ("old_package.old:four", "takes 4 positional arguments; what can be bridged takes"),
        ("old_package.old:number", "is an instance of builtins.int, not a class or a callable"),
        ("old_package.old:rest", "cannot be bridged: cannot tell what rest takes: it has *arguments"),
        ("old_package.old:OfEncoder", "vLLM shows a processor no encoder's input"),
        ("old_package.old:Odl", "Did you mean 'Old'"),
        ("old_package.odl:Old", "there is no module 'old_package.odl'"),
        ("old_package.old.Old", "Write old_package.old:Old"),
        ("old_package/old.py:Old", "is not of the form module:Class"),
        ("old_package.raises:made", "ZeroDivisionError"),
        ("lpkit.v1:LogitsProcessor", "is the interface itself"),
    ],
)
def test_what_cannot_be_wrapped_is_refused_with_the_reason(target: str, message: str) -> None:
    with pytest.raises((NotBridgeableError, LoadError)) as caught:
        examined(target)
    assert message in str(caught.value)


def test_a_child_imports_the_target_and_needs_no_vllm() -> None:
    assert find("old_package.other:Outer.Inner") == Bridgeable(
        "old_package.other", "Outer.Inner", "class", ("one", "two", "three")
    )
    assert "old_package.other" not in sys.modules


@pytest.mark.parametrize(
    ("target", "message"),
    [("old_package.old:four", "takes 4 positional"), ("old_package.exits:made", "ended the process with exit code 3")],
)
def test_a_refusal_and_a_lost_child_are_errors(target: str, message: str) -> None:
    with pytest.raises(NotBridgeableError, match=message):
        find(target)


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
