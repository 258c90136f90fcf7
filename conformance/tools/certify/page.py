"""Writes docs/evidence/releases.md from results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Results = Mapping[str, Mapping[str, Any]]
"""By release: ``torch``, ``date``, ``revision``, ``plugins`` (outcomes by name), and ``tests`` if they ran."""

HEAD = """\
<!-- Written by conformance/tools/certify (make certify); edit page.py there instead. -->

# Certified releases

What ran on a real engine of each release of vLLM, on a CPU: every reference plugin through `lpkit check --engine vllm`,
and the engine tests of lpkit's repository, which hold the facts of the newest release: on an older one those fail that
hold what is new, or whose plugins import V2's interface. Before 0.31 there are no custom processors on V2, and its
tests are left out.

```
make certify
```

| vLLM | torch | V1: plugins | V2: plugins | engine tests | revision | date |
|---|---|---|---|---|---|---|
"""


def text(results: Results) -> str:
    """The page; newest release first."""
    releases = sorted(results, key=lambda release: [int(part) for part in release.split(".")], reverse=True)
    rows = "".join(_row(release, results[release]) for release in releases)
    return HEAD + rows + "".join(_problems(release, results[release]) for release in releases)


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
    failed = sum(tests["failed"].values())
    return "; ".join([f"{tests['passed']} passed" + (f", {failed} failed" if failed else ""), *tests["problems"]])


def _problems(release: str, result: Mapping[str, Any]) -> str:
    lines = [f"- {name}: {problem}" for name, outcome in result["plugins"].items() for problem in outcome["problems"]]
    failed = (result.get("tests") or {}).get("failed", {})
    lines += [f"- `tests/engine/{file}.py`: {count} failed" for file, count in sorted(failed.items())]
    return f"\n## {release}: what did not pass\n\n" + "\n".join(lines) + "\n" if lines else ""
