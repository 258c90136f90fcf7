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


@pytest.mark.parametrize("options", [(), ("--load",)], ids=["static", "load"])
def test_list(site: Path, options: tuple[str, ...]) -> None:
    done = lpkit("list", "--json", *options, cwd=site.parent, path=(site,))
    document = json.loads(done.stdout)
    plugins = [item for item in document["plugins"] if item["distribution"] == "contract-dist"]
    rest = {key: value for key, value in document.items() if key != "vllm"}
    hold(
        "-".join(("list", *(option.strip("-") for option in options))),
        {
            "exit code": done.returncode,
            **shape({**rest, "plugins": plugins}, ("schema", "starts")),
            "facts": facts(plugins, *FACTS),
        },
    )


@pytest.mark.parametrize("release", ["0.33.0", "0.20.0"])
def test_doctor(site: Path, release: str) -> None:
    options = ("--vllm", release, "--pass", "both:P", "--spec-decode", "--no-async-scheduling")
    done = lpkit("doctor", "--json", *options, cwd=site.parent, path=(site,))
    document = json.loads(done.stdout)
    rest = {key: value for key, value in document.items() if key not in ("vllm", "versions")}
    plugins = [item for item in document["plugins"] if item["distribution"] == "contract-dist" or item["passed"]]
    names = {item["name"] for item in plugins}
    findings = [item for item in document["findings"] if item["plugin"] in names]
    literal = ("schema", "ok", "runner", "speculative_decoding")
    hold(
        f"doctor-{release}",
        {
            "exit code": done.returncode,
            "keys": list(document),
            "versions": list(document["versions"]),
            **shape({**rest, "plugins": plugins, "findings": findings}, literal),
            "facts": facts(plugins, *FACTS, "passed", "verdict"),
            "findings' facts": facts(findings, "code", "level", "plugin"),
        },
    )
