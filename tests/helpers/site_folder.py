"""A folder that looks like site-packages: what is installed, without pip."""

from __future__ import annotations

import textwrap
from pathlib import Path

from lpkit.loading import GROUP
from lpkit_conformance.discovery.installed import DiscoveredPlugin, Inventory, take_inventory


class Site:
    """A folder that looks like site-packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, file: str, body: str = "") -> Path:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(body), encoding="utf-8")
        return path

    def dist(
        self, name: str, version: str = "1.0", entry_points: str | None = None, requires: str = "", **files: str
    ) -> None:
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        wanted = f"Requires-Dist: {requires}\n" if requires else ""
        self.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}")
        if entry_points is not None:
            self.write(f"{info}/entry_points.txt", f"[{GROUP}]\n{entry_points}\n")
        for file, text in files.items():
            self.write(f"{info}/{file}", text)

    def take(self) -> Inventory:
        return take_inventory([str(self.folder)])

    def only(self) -> DiscoveredPlugin:
        (plugin,) = self.take().plugins
        return plugin

    def of(self, body: str, target: str = "plug:P") -> DiscoveredPlugin:
        """The row of a one-module plugin."""
        self.write("plug.py", body)
        self.dist("plug-dist", "0.7", f"plug = {target}")
        return self.only()
