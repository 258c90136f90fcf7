"""Writes docs/evidence/releases.md from results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certify.environment import TORCH, USUAL

Results = Mapping[str, Mapping[str, Any]]
"""Of each release, ``torch``, ``date``, ``revision``, ``plugins`` (outcomes by name), and ``tests`` if they ran."""

HEAD = """\
<!-- Written by conformance/tools/certify (make certify); edit page.py there instead. -->

# Certified releases

What ran on a real engine of each release of vLLM, on a CPU: every reference plugin through `lpkit check --engine vllm`,
and the engine tests of lpkit's repository. A test of what a release does not have yet is skipped there, and says
which release it needs. Revision and date belong to the plugins' run; tests that ran at another revision say so.

```
make certify CERTIFY_OPTIONS=--tests
```

These releases take the torch that lpkit is developed with. `CERTIFY_OPTIONS='--only {first}'` tries an older one
({older}), which needs another torch: several GB, as its builds for CPUs are not on every index.

| vLLM | torch | V1: plugins | V2: plugins | engine tests | revision | date |
|---|---|---|---|---|---|---|
"""


def text(results: Results, before: str = "") -> str:
    """The page, newest release first; of releases without results, what the page said ``before``."""
    rows = {line.split(" ")[1]: f"{line}\n" for line in before.splitlines() if line[:2] == "| " and line[2].isdigit()}
    problems = {part.partition(":")[0]: f"\n## {part.rstrip()}\n" for part in before.split("\n## ")[1:]}
    rows |= {release: _row(release, result) for release, result in results.items()}
    problems |= {release: _problems(release, result) for release, result in results.items()}
    releases = sorted(rows, key=lambda release: [int(part) for part in release.split(".")], reverse=True)
    older = [release for release in TORCH if release not in USUAL]
    head = HEAD.format(first=older[0], older=", ".join(older))
    return head + "".join([rows[item] for item in releases] + [problems.get(item, "") for item in releases])


def _row(release: str, result: Mapping[str, Any]) -> str:
    cells = [release, result["torch"], *(_plugins(result, runner) for runner in ("v1", "v2")), _tests(result)]
    return f"| {' | '.join([*cells, '`' + result['revision'] + '`', result['date']])} |\n"


def _plugins(result: Mapping[str, Any], runner: str) -> str:
    ran = [outcome for outcome in result["plugins"].values() if runner in outcome["runners"]]
    if not ran:
        return "no runner for plugins" if runner == "v2" else "none"
    counts = [outcome["runners"][runner] for outcome in ran if outcome["verdict"] != "error"]
    clean = sum(passed == count for passed, count in counts)
    return f"{clean} of {len(ran)} pass, {sum(passed for passed, _ in counts)} checks"


def _tests(result: Mapping[str, Any]) -> str:
    tests = result.get("tests")
    if tests is None:
        return "not run"
    failed = sum(sum(files.values()) for files in tests["failed"].values())
    counts = {"passed": tests["passed"], "skipped": tests.get("skipped", 0), "failed": failed}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "passed")
    at = tests.get("revision", result["revision"])
    revision = [] if at == result["revision"] else [f"at `{at}`, {tests['date']}"]
    return "; ".join([said, *tests["problems"], *revision])


def _problems(release: str, result: Mapping[str, Any]) -> str:
    lines = [f"- {name}: {problem}" for name, outcome in result["plugins"].items() for problem in outcome["problems"]]
    lines += [_failures(reason, files) for reason, files in (result.get("tests") or {}).get("failed", {}).items()]
    return f"\n## {release}: what did not pass\n\n" + "\n".join(lines) + "\n" if lines else ""


def _failures(reason: str, files: Mapping[str, int]) -> str:
    where = ", ".join(f"`{file}` {count}" for file, count in sorted(files.items()))
    return f"- engine tests, {sum(files.values())} failed: `{reason}` ({where})"
