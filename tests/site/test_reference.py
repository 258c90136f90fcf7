"""The reference has the public names, and only those."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from site_reader import SITE
from sphinx.util.inventory import InventoryFile

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_public_is_documented_and_what_is_documented_is_public() -> None:
    spec = importlib.util.spec_from_file_location("public_names", ROOT / "docs" / "_site" / "public_names.py")
    assert spec is not None
    assert spec.loader is not None
    api = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(api)
    public, aliases = set(api.public_names()), set(api.homes())
    with (SITE / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    documented = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    assert not public - documented
    members = {name for name in documented if name.rpartition(".")[0] in public}
    assert documented - members - public - aliases == set(api.MODULES) - {"lpkit_conformance"}
