"""Defects that LP005 must catch."""

from __future__ import annotations

from zoo.correct.portable import PortableBias
from zoo.registry import defect

Script = type("Script", (PortableBias,), {"__module__": "__main__", "__qualname__": "Script"})


defect("LP005", "defined in a script", style="packaging", name="Script", case=PortableBias.CASE)(Script)
