"""The results of one plugin that its tests share, computed on demand."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING
from unittest import mock

from lpkit_conformance.vllm_api import choose

if TYPE_CHECKING:
    from lpkit_conformance.results import CheckResult, TargetResult
    from lpkit_conformance.settings.plan import Plan
    from lpkit_conformance.settings.project import Project
    from lpkit_conformance.suite.in_process import Session

INACTIVE = ("no case makes the plugin act",)
"""Key of the failure that one test reports for all tests that need an active plugin."""


class ConformanceError(AssertionError):
    """A check failed; the message is the report's."""


class SharedRun:
    """The results of one plugin, computed on demand, with the results that they require.

    Attributes:
        items: code, name and host of every check.
        reported: findings and exceptions that failed tests have reported, with the label of the first.
        raised: labels of the checks whose findings were raised.
    """

    def __init__(self, target: str, plan: Plan, project: Project, judged_with: str) -> None:
        from lpkit.loading import LoadError, resolve_target

        from lpkit_conformance.suite.in_process import Session
        from lpkit_conformance.suite.load_failures import load_failure

        self.target, self.project, self._judged_with = target, project, judged_with
        self._environment = plan.environment
        self._unloadable: CheckResult | None = None
        self._session: Session | None = None
        self.reported: dict[tuple[str, ...], str] = {}
        self.raised: set[str] = set()
        try:
            with mock.patch.dict(os.environ, self._environment):
                cls = resolve_target(project.spec(target))
        except LoadError as error:
            result = self._unloadable = load_failure(target, error, uses_standin=False).result()
            self.items = [(result.code, result.name, result.host)]
            return
        self._session = Session(target, cls, plan)
        self.items = [(check.code, check.name, host) for check, host in self._session.items]

    def result(self, label: str) -> CheckResult:
        """The result of a check, as the project expects it."""
        from lpkit_conformance.results import TargetResult
        from lpkit_conformance.run import expect

        code = label.partition("[")[0]
        announced = any(item.code == code for item in self.project.expected)
        # Whether an announced failure came is a question to all hosts.
        labels = [name for name in self._labels() if name.partition("[")[0] == code] if announced else [label]
        results = TargetResult(self.target, (), tuple(self._compute(name) for name in labels))
        return next(item for item in expect(results, self.project.expected).checks if item.label == label)

    def roots(self, result: CheckResult) -> list[CheckResult]:
        """Return the results that block this result; empty unless it is blocked."""
        from lpkit_conformance.results import label_of

        if result.status != "blocked":
            return []
        wanted = [(code, host) for code, _, host in self.items if code in result.roots and host in ("", result.host)]
        return [self.result(label_of(code, host)) for code, host in wanted]

    def everything(self) -> TargetResult:
        """Return the result that ``lpkit check`` reports; runs all checks."""
        from lpkit_conformance.checks.catalogue import one_report_each
        from lpkit_conformance.results import TargetResult

        results = one_report_each([self.result(label) for label in self._labels()])
        if self._session is None:
            return TargetResult(self.target, (), results, judged_with=self._judged_with)
        interface = " and ".join(sorted(self._session.interfaces))
        error = self.hint() if self.inactive() else ""
        return TargetResult(self.target, self._session.hosts, results, interface, self._judged_with, error)

    def inactive(self) -> bool:
        """Return True if the plugin acted in no check; runs all checks."""
        from lpkit_conformance.checks.catalogue import inactive

        return inactive([self._compute(label) for label in self._labels()])

    def hint(self) -> str:
        """Explain why it did not act."""
        assert self._session is not None
        with surroundings(self._environment):
            return self._session.hint()

    def _labels(self) -> list[str]:
        from lpkit_conformance.results import label_of

        return [label_of(code, host) for code, _, host in self.items]

    def _compute(self, label: str) -> CheckResult:
        if self._session is None:
            assert self._unloadable is not None
            return self._unloadable
        with surroundings(self._environment):
            return self._session.result(label)


@contextmanager
def surroundings(environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """Isolate the process settings of loading a plugin and running its checks from other tests.

    Yields the API that plugins are judged with: vLLM or the stand-in. ``environment``: the project's variables.
    """
    with choose.prepared() as judged_with:
        import torch

        from lpkit_conformance.vllm_api.stub import lent_buffers

        # One thread, as `lpkit check` runs: sums come out the same every time.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with lent_buffers(torch.device("cpu")), mock.patch.dict(os.environ, environment):
                yield judged_with
        finally:
            torch.set_num_threads(threads)


class BoundCheck:
    """One check on one host, ready to run."""

    def __init__(self, run: SharedRun, code: str, name: str, host: str) -> None:
        self._run = run
        self.code, self.name, self.host = code, name, host

    @property
    def label(self) -> str:
        from lpkit_conformance.results import label_of

        return label_of(self.code, self.host)

    def __repr__(self) -> str:
        return f"{self.label} {self.name}"

    def run(self) -> None:
        """Raise :class:`ConformanceError` if the plugin breaks the rule; skip the test without a verdict."""
        import pytest

        __tracebackhide__ = True
        result = self._run.result(self.label)
        # With `-k` the check that blocks this one may have no test that says so.
        for judged in (result, *self._run.roots(result)):
            if judged.status in ("failed", "unexpected_pass", "error"):
                self._fail(judged)
        if result.status == "expected":
            pytest.xfail(result.message)
        if result.status in ("skipped", "blocked"):
            inactive = result.never_active and self._run.inactive()
            if inactive and self._run.reported.setdefault(INACTIVE, self.label) == self.label:
                raise ConformanceError(self._run.hint())
            pytest.skip(f"{result.status}: {result.message}")

    def _fail(self, result: CheckResult) -> None:
        """Raise the finding, or skip the test if another test has raised it."""
        import pytest

        from lpkit_conformance.report.text import check_lines
        from lpkit_conformance.run.failures import save_check

        __tracebackhide__ = True
        met = result.finding.root if result.finding else None
        for said in (result.said, *([met] if met else [])):
            first = self._run.reported.setdefault(said, result.label)
            if first != result.label:
                pytest.skip(f"the same finding as that of {first}, which failed")
        if result.label != self.label and result.label in self._run.raised:
            pytest.skip(f"blocked: needs {result.label}, which failed")
        self._run.raised.add(result.label)
        with suppress(OSError):  # a folder that cannot be written costs the file, not the verdict
            result = save_check(self._run.target, result)
        raise ConformanceError("\n".join(["", *check_lines(result)]))
