"""A folder with plugins, and distributions that announce them."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lpkit import loading

PLUGIN = """
    import functools
    from lpkit import v1, v2

    class OnlyV1(v1.LogitsProcessor):
        def __init__(self, vllm_config, device, is_pin_memory): self.arguments = (vllm_config, device, is_pin_memory)
        def apply(self, logits): return logits
        def is_argmax_invariant(self): return True
        def update_state(self, batch_update): pass

    class OnlyV2(v2.LogitsProcessor):
        def __init__(self, vllm_config, req_states): self.arguments = (vllm_config, req_states)
        def apply(self, logits, ctx): return logits

    class Both(v1.LogitsProcessor, v2.LogitsProcessor):
        def __init__(self, vllm_config, *state): self.arguments = (vllm_config, *state)
        def apply(self, logits, ctx=None): return logits
        def is_argmax_invariant(self): return False
        def update_state(self, batch_update): pass

    class Outer:
        class Inner(Both): pass

    class LogitsProcessor: pass
    class Namesake(LogitsProcessor): pass

    def make(*arguments): return Both(*arguments)
    instance = OnlyV1(None, None, False)
    part = functools.partial(Both)
"""


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    modules = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable folder with the module ``lp_plugin``."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "lp_plugin.py").write_text(textwrap.dedent(PLUGIN))
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def install(site: Path) -> Callable[..., None]:
    """Pretends that a distribution with entry points is installed."""

    def install(name: str, version: str = "1.0", *, folder: Path = site, **entry_points: str) -> None:
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = "".join(f"{key} = {value}\n" for key, value in entry_points.items())
        (info / "entry_points.txt").write_text(f"[{loading.GROUP}]\n{lines}")

    return install
