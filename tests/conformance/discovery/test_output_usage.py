"""The source of a class shows how much of the output it reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from site_folder import Site

V1 = "from vllm.v1.sample.logits_processor import LogitsProcessor, AdapterLogitsProcessor, process_dict_updates\n"
HEAD = V1 + "class P(LogitsProcessor):\n"


def added(line: str, target: str = "index, params, prompt, output") -> str:
    """Return a V1 class whose ``update_state`` loops over the added requests."""
    body = f"    def update_state(self, update):\n        for {target} in update.added:\n            {line}\n"
    return HEAD + body


def helper(argument: str, method: str = "") -> str:
    """Return a V1 class that leaves the bookkeeping to vLLM's helper."""
    return (
        f"{HEAD}    def update_state(self, update):\n        process_dict_updates(self.d, update, {argument})\n{method}"
    )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("import lpkit\nclass P(lpkit.LogitsProcessor): ...", "none"),
        ("import lpkit\nclass P(lpkit.LogitsProcessor):\n    history = 'length'", "length"),
        ("import lpkit\nclass P(lpkit.LogitsProcessor):\n    history: str = 'tokens'", "tokens"),
        ("import lpkit\nclass B(lpkit.LogitsProcessor):\n    history = 'tokens'\nclass P(B): ...", "tokens"),
        ("import lpkit\nclass B(lpkit.LogitsProcessor):\n    history = 'tokens'\n"
         "class P(B):\n    history = 'none'", "none"),
        ("import lpkit\nclass P(lpkit.LogitsProcessor):\n    history = pick()", "unknown"),
        ("import lpkit\nclass P(lpkit.AdapterLogitsProcessor): ...", "tokens"),
        ("import lpkit\nclass P(lpkit.AdapterLogitsProcessor):\n    history = 'none'", "none"),
        ("import lpkit\nfrom elsewhere import Mixin\nclass P(lpkit.LogitsProcessor, Mixin): ...", "unknown"),
        ("from lpkit import bridge\nfrom x import Y\nP = bridge.portable(Y)", "unknown"),
        (V1 + "class P(AdapterLogitsProcessor): ...", "unknown"),
        (HEAD + "    def update_state(self, update): pass", "none"),
        (HEAD + "    pass", "unknown"),
        (HEAD + "    def update_state(self, update): self.other(update)", "unknown"),
        (added("self.d[index] = params"), "none"),
        (added("self.d[index] = params", "index, params, _, _"), "none"),
        (added("self.d[index] = params", "index, params, *_"), "none"),
        (added("self.d[index] = rest", "index, params, *rest"), "unknown"),
        (added("self.d[index] = len(output)"), "length"),
        (added("self.d[index] = output[-1]"), "tokens"),
        (added("self.d[index] = set(output)"), "tokens"),
        (added("self.d[index] = 5 in output"), "tokens"),
        (added("self.d[index] = [t for t in output]"), "tokens"),
        (added("self.d[index] = len(output), output[-1]"), "tokens"),
        (added("self.d[index] = output.count(5)"), "tokens"),
        (added("self.d[index] = output.copy()"), "unknown"),
        (added("self.d[index] = output"), "unknown"),
        (added("self.add(request)", "request"), "unknown"),
        (helper("lambda params, prompt, output: params.extra_args"), "none"),
        (helper("lambda params, prompt, output: len(output)"), "length"),
        (helper("self.new", "    def new(self, params, prompt, output):\n        return output[0]\n"), "tokens"),
        (helper("self.new", "    @staticmethod\n    def new(params, _, output):\n        return params\n"), "none"),
        (helper("new"), "unknown"),
        (added("self.d[index] = output[-1]").replace("class P", "class B")
         + "class P(B):\n    def update_state(self, update):\n        super().update_state(update)\n"
         + "        for index, params, _, _ in update.added: ...", "tokens"),
        (added("self.d[index] = output[-1]").replace("class P", "class B")
         + "class P(B):\n    def update_state(self, update):\n"
         + "        for index, params, _, _ in update.added: ...", "none"),
    ],
)  # fmt: skip
def test_what_is_read_is_reported_or_said_to_be_unknown(site: Site, body: str, expected: str) -> None:
    assert site.of(body).reads == expected


@pytest.mark.parametrize("target", ["plug:P", "pack:Alias", "pack.deep:P"])
def test_a_class_is_known_by_where_it_is_defined(site: Site, target: str) -> None:
    site.write("pack/__init__.py", "from pack.deep import P as Alias")
    site.write("pack/deep.py", "from plug import P")
    assert site.of("import lpkit\nclass P(lpkit.LogitsProcessor): ...", target).defined == "plug:P"
