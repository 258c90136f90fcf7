"""A page at each address that a page of the site had before it moved, which leads to where it is."""

from __future__ import annotations

import json
from pathlib import Path

from sphinx.application import Sphinx

MOVED: dict[str, str] = json.loads((Path(__file__).parent / "moved.json").read_text(encoding="utf-8"))

PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{target}">
<meta http-equiv="refresh" content="0; url={target}">
<script>location.replace("{target}" + location.hash)</script>
<p>This page has moved to <a href="{target}">{name}</a>.</p>
</html>
"""


def write(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.name != "dirhtml":
        return
    for old, new in MOVED.items():
        folder = Path(app.outdir, old)
        folder.mkdir(parents=True, exist_ok=True)
        target = "../" * len(Path(old).parts) + new + "/"
        (folder / "index.html").write_text(PAGE.format(target=target, name=new), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
