"""The mutation tool: what it mutates exists, what it counts as a change, and one mutant that the suite catches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("the mutation tool forks, and is for Linux only", allow_module_level=True)

from mutation import __main__ as command
from mutation import mutants, page
from mutation.survivors import EQUIVALENT, GPU_ONLY, OTHER_RULE, REASONS

ROOT = Path(__file__).resolve().parents[3]
PROBES_FILE = ROOT / "conformance" / "tools" / "mutation" / "probes.py"
RUN = """
import sys
from mutation import __main__ as command, mutants

def generate(path):
    text = path.read_text(encoding="utf-8")
    for old, new in [
        ("self.ids[request.slot] = [*ids,", "self.ids[0] = [*ids,"),
        ("min_length=1, max_length=6)", "min_length=1, max_length=5)"),
        ("    ids = lpkit.column(torch.int64, default=-1, width=6)", "    ids = lpkit.column("),
        ("prefix=\\"ban_\\"):", "prefix=\\"ban_\\"):  # a comment"),
    ]:
        assert old in text
        yield text.replace(old, new)

mutants.generate = generate
command.main()
"""


def test_the_files_and_the_processors_of_the_tool_exist() -> None:
    for file in (*command.SDK, *command.PROCESSORS):
        assert (ROOT / file).is_file(), file
    sources = "".join(path.read_text("utf-8") for path in (PROBES_FILE, *map(ROOT.joinpath, command.PROCESSORS)))
    assert [name for name in command.PROBES if f"class {name}(" not in sources] == []


def test_a_survivor_is_explained_once() -> None:
    listed = [*EQUIVALENT, *GPU_ONLY, *OTHER_RULE]
    assert len(set(listed)) == len(listed)
    assert {*EQUIVALENT.values(), *GPU_ONLY.values(), *OTHER_RULE.values()} <= REASONS.keys()


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ("def f(x: str) -> None:\n    return x + 1\n", True),
        ('def f(x):\n    "what it does"\n    pass\n    return x + 1\n', True),
        ("def f(x):\n    return x - 1\n", False),
    ],
)
def test_annotations_docstrings_and_pass_are_no_change(change: str, same: bool) -> None:
    assert (mutants.meaning(change) == mutants.meaning("def f(x):\n    return x + 1\n")) is same


def test_advice_that_the_original_gets_too_is_a_miss() -> None:
    mutant = mutants.Mutant("sdk/a.py", 1, "f", "x", "y", "")
    found = {"status": "survived", "advice": {"WitnessRows": ["LP701[v1]"]}}
    assert page.verdict(mutant, found, {}) == "advice"
    assert page.verdict(mutant, found, {"WitnessRows": ["LP701[v1]"]}) == "missed"
    assert page.verdict(mutant, {"status": "failed"}, {}) == "caught"


def test_a_mutant_that_writes_the_wrong_slot_is_caught_and_a_stricter_limit_is_not(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"original": {"status": "survived", "advice": {}}}))
    folders = [ROOT / "conformance" / "tools", ROOT / "tests" / "conformance", ROOT / "sdk", ROOT / "conformance"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, "--work", str(tmp_path), "--only", "portable_correct", "--depth", "0"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    del results["original"]
    assert sorted((outcome["status"], outcome["probe"]) for outcome in results.values()) == [
        ("failed", "PortableBan"),
        ("survived", ""),
    ], results
