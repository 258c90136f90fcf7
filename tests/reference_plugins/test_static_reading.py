"""``lpkit list`` and ``lpkit doctor`` read the same from a plugin's source as from its imported class."""

from __future__ import annotations

from pathlib import Path

import lpkit
import pytest
from lpkit.loading import GROUP, interfaces_of
from lpkit_conformance.discovery.installed import take_inventory
from shipped import PLUGINS, load, settings

SDK = Path(lpkit.__file__).parents[1]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_source_and_class_agree(plugin: Path, tmp_path: Path) -> None:
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"{name} = {target}\n" for name, target in settings(plugin).entry_points.items()]
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}", encoding="utf-8")
    (found,) = take_inventory([str(tmp_path), str(plugin / "src"), str(SDK)]).plugins

    cls = load(plugin)
    assert found.defined == f"{cls.__module__}:{cls.__qualname__}"
    assert found.reads == cls.history
    assert found.interface == "both"
    assert interfaces_of(cls) == {"v1", "v2"}
