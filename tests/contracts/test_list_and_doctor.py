"""``lpkit list --json`` and ``lpkit doctor --json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import lpkit
from golden import hold
from shape import shape
from site_folder import Site

ONE = "from lpkit import v1\nclass P(v1.LogitsProcessor): ...\n"
TWO = "from lpkit import v2\nclass P(v2.LogitsProcessor): ...\n"
BOTH = "import lpkit\nclass P(lpkit.LogitsProcessor):\n    def process(self, logits, rows): return logits\n"
ENTRY_POINTS = "one = one:P\ntwo = two:P\nboth = both:P\ntwin = both:P\ngone = nowhere:P\ndead = dead:P"
FACTS = ("name", "target", "version", "interface", "starts_v1", "starts_v2", "source", "defined", "reads")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like site-packages, with plugins of every kind."""
    site = Site(tmp_path_factory.mktemp("installed") / "site")
    site.dist("contract-dist", "4.2", ENTRY_POINTS)
    for name, text in {"one": ONE, "two": TWO, "both": BOTH, "dead": "import os\nos._exit(3)\n"}.items():
        site.write(f"{name}.py", text)
    return site.folder


def facts(items: list[dict[str, Any]], *names: str) -> list[list[Any]]:
    """Values that are contract themselves, a row for each item."""
    return [[item[name] for name in names] for item in items]


def test_list(site: Path) -> None:
    """By sources, and by import."""
    runs = [lpkit("list", "--json", *options, cwd=site.parent, path=(site,)) for options in ((), ("--load",))]
    documents = [json.loads(done.stdout) for done in runs]
    for document in documents:
        document["plugins"] = [item for item in document["plugins"] if item["distribution"] == "contract-dist"]
        document.pop("vllm")
    hold(
        "list",
        {
            "exit codes": [done.returncode for done in runs],
            **shape(documents, ("schema", "starts"))[0],
            "facts": [facts(document["plugins"], *FACTS) for document in documents],
        },
    )


def test_doctor(site: Path) -> None:
    """On two releases, of which the older has another runner."""
    options = ("--pass", "both:P", "--spec-decode", "--no-async-scheduling")
    releases = ("0.33.0", "0.20.0")
    runs = [lpkit("doctor", "--json", "--vllm", one, *options, cwd=site.parent, path=(site,)) for one in releases]
    documents = [json.loads(done.stdout) for done in runs]
    keys, versions = list(documents[0]), list(documents[0]["versions"])
    for document in documents:
        plugins = document["plugins"]
        document["plugins"] = [item for item in plugins if item["distribution"] == "contract-dist" or item["passed"]]
        names = {item["name"] for item in document["plugins"]}
        document["findings"] = [item for item in document["findings"] if item["plugin"] in names]
        del document["vllm"], document["versions"]
    hold(
        "doctor",
        {
            "exit codes": [done.returncode for done in runs],
            "keys": keys,
            "versions": versions,
            **shape(documents, ("schema",))[0],
            "facts": [
                {
                    "ok": document["ok"],
                    "runner": document["judged"]["runner"],
                    "plugins": facts(document["plugins"], *FACTS, "passed", "verdict"),
                    "findings": facts(document["findings"], "code", "level", "plugin"),
                }
                for document in documents
            ],
        },
    )
