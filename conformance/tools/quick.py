"""The tests that a change can reach, nearest first, for a minute: ``make quick``.

    make quick [QUICK='conformance/lpkit_conformance/expectation/compare.py --seconds 30']

What a change easily forgets comes first: the budgets of rooms, the list of codes. The distance of other tests is the
smallest number of imports between them and a changed file. For a changed rule, its specimens come before them, and a
few correct processors of each style; for a changed plugin, the tests with its name. Tests that did not fit into the
time, and changed files that no test imports, are listed.
"""

from __future__ import annotations

import argparse
import ast
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
SPARES = "test_the_check_alone_does_not_fail_a_correct_processor"
"""All specimens of a changed rule are judged, and a few correct processors of each style, by this rule alone."""
PASSES = "test_no_check_fails_a_correct_processor"
"""Correct processors of a changed file of the zoo are judged by all rules."""
FORGOTTEN = (
    "tests/conformance/tools/test_layers.py::test_every_import_goes_down_and_every_room_says_what_it_holds",
    "tests/contracts/test_command_line.py::test_the_codes_of_the_checks",
)
"""Seconds for what most changes of a rule or a room forget."""
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


def changed_lines(file: str) -> set[int]:
    """Return the lines of a file that differ from the last commit; none of a file that git does not know."""
    numbers: set[int] = set()
    command = ["git", "diff", "-U0", "HEAD", "--", file]
    for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            numbers |= {*range(first, first + max(count, 1))}
    return numbers


def distances(files: Iterable[str]) -> dict[str, int]:
    """Test files by the fewest imports that lead from each to one of ``files``."""
    sources = {name: str(file.relative_to(ROOT)) for name, file in modules().items()}
    sources |= {
        ".".join(file.relative_to(ZOO.parent).with_suffix("").parts): str(file.relative_to(ROOT))
        for file in ZOO.rglob("*.py")
    }
    tests = [str(file.relative_to(ROOT)) for file in TESTS.rglob("test_*.py") if ZOO not in file.parents]
    uses = {file: imported(name, ROOT / file) for name, file in sources.items()}
    uses |= {file: imported("", ROOT / file) for file in tests if not file.startswith(ELSEWHERE)}
    importers: dict[str, set[str]] = {}
    for file, names in uses.items():
        for name in names:
            importers.setdefault(sources.get(name, ""), set()).add(file)
    near = dict.fromkeys(files, 0)
    near |= dict.fromkeys((file for file in sources.values() if reads(file, files)), 0)
    layer = set(near)
    while layer:
        layer = {file for other in layer for file in importers.get(other, ())} - near.keys()
        near |= dict.fromkeys(layer, max(near.values()) + 1)
    # Modules that are loaded by name have no importer: tests that name a rule, and those of the room, are near, too.
    rules = codes(files)
    rooms = {str(Path("tests", *Path(file).parts[:1], *Path(file).parts[2:-1])) for file in files}
    named = rules | ({"reference_plugins"} if plugins(files) else set())
    for file in tests:
        if not file.startswith(ELSEWHERE) and any(name in (ROOT / file).read_text("utf-8") for name in named):
            near[file] = min(near.get(file, 1), 1)
        elif str(Path(file).parent) in rooms:
            near[file] = min(near.get(file, 2), 2)
    return {file: steps for file, steps in near.items() if file in tests and (ROOT / file).exists()}


def reads(module: str, files: Iterable[str]) -> bool:
    """Return True if a module names a changed file of its folder that is no module, such as a table."""
    beside = [Path(file) for file in files if not file.endswith(".py") and Path(file).parent == Path(module).parent]
    return any(file.name in (ROOT / module).read_text("utf-8") for file in beside)


def plugins(files: Iterable[str]) -> set[str]:
    """Return names of the reference plugins in these files."""
    return {Path(file).parts[1] for file in files if file.startswith("reference_plugins/")}


def codes(files: Iterable[str]) -> set[str]:
    """Return the checks whose class or specimens changed; all checks of a module if one of its functions changed."""
    defined = set()
    for file in files:
        if (ROOT / file).exists() and "/checks/" in file and file.endswith(".py"):
            text = (ROOT / file).read_text("utf-8")
            rules = {
                node.name: {*range(node.lineno, (node.end_lineno or 0) + 1)}
                for node in ast.parse(text).body
                if isinstance(node, ast.ClassDef) and re.fullmatch(r"LP\d{3}", node.name)
            }
            written = {number for number, line in enumerate(text.splitlines(), 1) if line}
            lines = changed_lines(file) & written
            whole = not lines or lines - set().union(*rules.values())
            defined |= {code for code, lines_of_rule in rules.items() if whole or lines_of_rule & lines}
        if match := re.search(r"/zoo/(lp\d{3})\b|/examples/(LP\d{3})\.", file):
            defined.add((match[1] or match[2]).upper())
    return defined


class Nearest:
    """Sorts the tests, keeps the specimens of changed rules, and stops when the time is over."""

    def __init__(self, near: dict[str, int], files: Iterable[str], end: float) -> None:
        self.near, self.rules, self.end = near, codes(files), end
        zoo = [(ROOT / file).relative_to(ZOO.parent) for file in files if str(ZOO) in str(ROOT / file)]
        self.subjects = plugins(files) | {".".join(path.with_suffix("").parts) for path in zoo}
        self.waiting: dict[str, int] = {}

    def distance(self, item: pytest.Item) -> float:
        """Imports between a test and the change; below 1 for specimens and a changed plugin."""
        file = str(item.path.relative_to(ROOT))
        if item.nodeid in FORGOTTEN:
            return -1
        if file == JUDGES:
            return 0.5 * item.name.startswith((SPARES, PASSES))
        return 0 if self.of_subject(item) else self.near[file]

    def of_subject(self, item: pytest.Item) -> bool:
        """True if a changed plugin, or a correct processor of a changed file of the zoo, is the test's parameter."""
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        target = getattr(parameters.get("specimen"), "target", None)
        if target is not None:
            return item.name.startswith(PASSES) and getattr(target, "__module__", "") in self.subjects
        return any(subject in item.name for subject in self.subjects)

    def wanted(self, item: pytest.Item) -> bool:
        """True unless the test judges a specimen of another rule."""
        file = str(item.path.relative_to(ROOT))
        judge, _, parameter = item.name.rstrip("]").partition("[")
        of_rule = parameter.startswith(tuple(self.rules))
        if of_rule and judge in (CATCHES, SPARES):
            return True
        ours = self.of_subject(item)
        if any(map(item.get_closest_marker, ("deep", "gpu") if ours else ("broad", "deep", "gpu"))):
            return False
        if file == JUDGES:
            return ours or of_rule or not parameter
        return file in self.near or item.nodeid in FORGOTTEN

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(filter(self.wanted, items), key=self.distance)
        for item in items:
            file = str(item.path.relative_to(ROOT))
            self.waiting[file] = self.waiting.get(file, 0) + 1

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.waiting[nodeid.partition("::")[0]] -= 1  # the location of a state machine is a file of hypothesis

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
    near = distances(files)
    nearest = Nearest(near, files, begun + given.seconds)
    chosen = sorted({*near, *([JUDGES] if nearest.rules else [])}, key=lambda file: near.get(file, 0))
    if not chosen:
        print(f"No import leads from a test to {', '.join(files)}: see CONTRIBUTING, After a change.")
        return 0
    chosen += {node.partition("::")[0] for node in FORGOTTEN} - {*chosen}
    options = ["-q", "--no-header", "-p", "no:cacheprovider"]
    status = pytest.main([*options, *(str(ROOT / file) for file in chosen)], [nearest])
    left = {file: count for file, count in nearest.waiting.items() if count}
    print(f"\nLeft out: {sum(left.values())} tests in {len(left)} files that the time was too short for")
    for file, count in sorted(left.items(), key=lambda pair: near.get(pair[0], 0))[:20]:
        print(f"  {count:4} {file}")
    print("and all tests that no import leads to, such as tests that start `lpkit`. `make test` runs them.")
    stopped = status == pytest.ExitCode.INTERRUPTED and nearest.session.shouldstop == OVER
    return int(bool(nearest.session.testsfailed) if stopped else status)


if __name__ == "__main__":
    sys.exit(main())
