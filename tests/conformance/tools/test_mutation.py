"""The mutation tool: its files exist, it counts changes correctly, and the suite catches a mutant."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("the mutation tool limits memory and time as POSIX does", allow_module_level=True)

from mutation import __main__ as command
from mutation import mutants, page

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
    file = ROOT / "conformance" / "tools" / "mutation" / "survivors.toml"
    listed = re.findall(r"[A-Za-z_]\w*-[0-9a-f]{8}(?:-\d)?", file.read_text("utf-8"))
    assert sorted(listed) == sorted(page.explained())
    assert {kind for kind, _ in page.explained().values()} <= {*page.KINDS}


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


def test_decorators_and_cases_of_specimens_are_not_mutated() -> None:
    body = ["CASE = {'n': 1}", "size = 2", "", "@property", "def n(self):", "    return 1"]
    source = "\n".join(["@sound('odd')", "class Odd:", *(f"    {line}" for line in body)])
    assert mutants.owner_of_lines(source) == {2: "Odd", 4: "Odd", 5: "Odd", 6: "Odd.n", 7: "Odd.n", 8: "Odd.n"}


def test_a_survivor_without_an_explanation_is_missed() -> None:
    mutant = mutants.Mutant("sdk/a.py", 1, "f", "x", "y", "")
    survived, failed = ({"status": status, "by": "LP201[v1]"} for status in ("survived", "failed"))
    assert [page.kind_of(mutant, outcome) for outcome in (survived, failed)] == ["missed", "caught"]
    explained = mutants.Mutant("sdk/a.py", 1, "f", "x", "y", "", ordinal=0)
    text = page.render(["sdk/a.py"], [explained], {explained.id: failed})
    assert "| `sdk/a.py` | 1 | 1 | 0 | 0 | 0 | 0 | 100.0% |" in text


@pytest.mark.deep
def test_a_mutant_that_writes_the_wrong_slot_is_caught_and_a_stricter_limit_is_not(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"original": {"status": "survived"}}))
    folders = [ROOT / "conformance" / "tools", ROOT / "tests" / "conformance", ROOT / "sdk", ROOT / "conformance"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, "--work", str(tmp_path), "--only", "correct/portable", "--quick"],
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
