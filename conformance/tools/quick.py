"""The tests that a change can reach, nearest first, for a minute: ``make quick``.

    make quick [QUICK='conformance/lpkit_conformance/expectation/compare.py --seconds 30']

The distance of a test is the smallest number of imports between it and a changed file. For a changed rule, its
specimens come first, and a few correct processors of each style. Tests that did not fit into the time, and changed
files that no test imports, are listed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from layers.imports import ROOT, imported, modules

TESTS = ROOT / "tests"
ZOO = TESTS / "conformance" / "zoo"
JUDGES = "tests/conformance/test_zoo.py"
CATCHES = "test_the_named_check_catches_the_defect"
"""All specimens of a changed rule are judged, also those that `make test` leaves to `make broad`."""
CORRECT = (
    *("v1-Bias", "v1-NoRepeatBigram", "v2-V2MinP", "v2-V2Presence"),
    *("portable-PortableMinP", "adapter-AdapterReplays"),
)
OVER = "the time is over"
ELSEWHERE = ("tests/engine", "tests/engines", "tests/gpu", "tests/site", "tests/contracts/fixtures")
"""Tests that need more than this environment has, and fixtures named like tests."""


def changed() -> list[str]:
    """Return files that differ from the last commit; without changes, the files of the last commit."""
    for command in (
        "git status --porcelain --untracked-files=all --no-renames",
        "git show --name-status --format= HEAD",
    ):
        lines = subprocess.run(
            command.split(), cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        if lines:
            break
    return [line.split(maxsplit=1)[1] for line in lines]


def distances(files: Iterable[str]) -> dict[str, int]:
    """Test files by the fewest imports that lead from each to one of ``files``."""
    sources = {name: str(file.relative_to(ROOT)) for name, file in modules().items()}
    sources |= {
        ".".join(file.relative_to(ZOO.parent).with_suffix("").parts): str(file.relative_to(ROOT))
        for file in ZOO.rglob("*.py")
    }
    tests = [str(file.relative_to(ROOT)) for file in TESTS.rglob("test_*.py") if ZOO not in file.parents]
    uses = {file: {*imported(name, ROOT / file)} for name, file in sources.items()}
    uses |= {file: {*imported("", ROOT / file)} for file in tests if not file.startswith(ELSEWHERE)}
    importers: dict[str, set[str]] = {}
    for file, names in uses.items():
        for name in names:
            importers.setdefault(sources.get(name, ""), set()).add(file)
    near = dict.fromkeys(files, 0)
    layer = set(near)
    while layer:
        layer = {file for other in layer for file in importers.get(other, ())} - near.keys()
        near |= dict.fromkeys(layer, max(near.values()) + 1)
    # Modules that are loaded by name have no importer: tests that name a rule, and those of the room, are near, too.
    rules = codes(files)
    rooms = {str(Path("tests", *Path(file).parts[:1], *Path(file).parts[2:-1])) for file in files}
    for file in tests:
        if not file.startswith(ELSEWHERE) and any(code in (ROOT / file).read_text("utf-8") for code in rules):
            near[file] = min(near.get(file, 1), 1)
        elif str(Path(file).parent) in rooms:
            near[file] = min(near.get(file, 2), 2)
    return {file: steps for file, steps in near.items() if file in tests and (ROOT / file).exists()}


def codes(files: Iterable[str]) -> set[str]:
    """Return checks whose class or specimens are in these files."""
    defined = set()
    for file in files:
        if (ROOT / file).exists() and "/checks/" in file:
            defined |= {*re.findall(r"^class (LP\d{3})\b", (ROOT / file).read_text("utf-8"), re.MULTILINE)}
        if match := re.search(r"/zoo/(lp\d{3})\.py$|/examples/(LP\d{3})\.", file):
            defined.add((match[1] or match[2]).upper())
    return defined


class Nearest:
    """Sorts the tests, keeps the specimens of changed rules, and stops when the time is over."""

    def __init__(self, near: dict[str, int], rules: set[str], end: float) -> None:
        self.near, self.rules, self.end = near, rules, end
        self.waiting: dict[str, int] = {}

    def distance(self, item: pytest.Item) -> int:
        """Imports between a test and the change; specimens are at 0."""
        file = str(item.path.relative_to(ROOT))
        return 0 if file == JUDGES else self.near[file]

    def wanted(self, item: pytest.Item) -> bool:
        """True unless the test judges a specimen of another rule."""
        judge, _, parameter = item.name.rstrip("]").partition("[")
        of_rule = parameter.startswith(tuple(self.rules))
        long = ("deep", "gpu") if of_rule and judge == CATCHES else ("broad", "deep", "gpu")
        if any(map(item.get_closest_marker, long)):
            return False
        ours = of_rule or (bool(self.rules) and parameter in CORRECT)
        return ours or str(item.path.relative_to(ROOT)) != JUDGES or not parameter

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(filter(self.wanted, items), key=self.distance)
        for item in items:
            file = str(item.path.relative_to(ROOT))
            self.waiting[file] = self.waiting.get(file, 0) + 1

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.waiting[location[0]] -= 1

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        if time.monotonic() > self.end:
            self.session.shouldstop = OVER

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make quick", description=__doc__)
    parser.add_argument("files", nargs="*", help="changed files; without any, git knows them")
    parser.add_argument("--seconds", type=float, default=55, help="start no test after these")
    begun, given = time.monotonic(), parser.parse_args(arguments)
    files = given.files or changed()
    near, rules = distances(files), codes(files)
    chosen = sorted({*near, *([JUDGES] if rules else [])}, key=lambda file: near.get(file, 0))
    if not chosen:
        print(f"No import leads from a test to {', '.join(files)}: see CONTRIBUTING, After a change.")
        return 0
    nearest = Nearest(near, rules, begun + given.seconds)
    options = ["-q", "--no-header", "-p", "no:cacheprovider"]
    status = pytest.main([*options, *(str(ROOT / file) for file in chosen)], [nearest])
    left = {file: count for file, count in nearest.waiting.items() if count}
    print(f"\nLeft out: {sum(left.values())} tests in {len(left)} files that the time was too short for")
    for file, count in sorted(left.items(), key=lambda pair: near.get(pair[0], 0))[:20]:
        print(f"  {count:4} {file}")
    print("and all tests that no import leads to, as those that start `lpkit`. `make test` runs them.")
    stopped = status == pytest.ExitCode.INTERRUPTED and nearest.session.shouldstop == OVER
    return int(bool(nearest.session.testsfailed) if stopped else status)


if __name__ == "__main__":
    sys.exit(main())
