"""The performance page's table and its plot are the same numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lpkit_conformance.report.plot import seconds

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "evidence"


def test_the_table_is_the_data_that_the_plot_is_drawn_from() -> None:
    data = json.loads((FOLDER / "performance.json").read_text(encoding="utf-8"))
    page = (FOLDER / "performance.md").read_text(encoding="utf-8")
    section = page[page.index("### `apply` on V1") : page.index("In the next tables")]
    rows = dict(re.findall(r"^(\| lpkit-.+? \| [\d,]+) \| (.+) \|$", section, re.M))
    wanted = {
        f"| {name} | {int(vocab):,}": " | ".join(map(seconds, times))
        for name, sizes in data["seconds"].items()
        for vocab, times in sizes.items()
    }
    plugins = [path.name for path in (FOLDER.parents[1] / "reference_plugins").iterdir()]
    assert sorted(data["seconds"]) == sorted(plugins)
    assert rows == wanted
    for said in (data["date"], data["command"], *data["versions"].values(), data["processor"]):
        assert said in page
