"""Fixtures of tests on other engines' packages. A test here that cannot run has failed: a skip proves nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent / "helpers"))
sys.path[:0] = [str(folder) for folder in sorted(ROOT.glob("reference_plugins/*/src"))]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    return _no_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    return _no_skip((yield))


def _no_skip(report: Any) -> Any:
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"a test on an engine must run, but was skipped: {report.longrepr}"
    return report
