"""The suite in a plugin's own tests.

    from lpkit_conformance.testing import parametrize_with_checks

    @parametrize_with_checks("my_package.processor:MyProcessor")
    def test_conformance(check):
        check.run()

Cases, hosts and expected failures come from ``[tool.lpkit]`` of the project that pytest runs in. The checks run in
this process, where debuggers and coverage see them; ``lpkit check`` gives the same verdicts in a process apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from lpkit_conformance import project as projects
from lpkit_conformance import session, standin
from lpkit_conformance.project import Project
from lpkit_conformance.report.text import check_lines
from lpkit_conformance.results import CheckResult, TargetResult
from lpkit_conformance.subject import Subject
from lpkit_conformance.suite import Options, expect, plan_for

Test = TypeVar("Test", bound=Callable[..., Any])


class ConformanceError(AssertionError):
    """A check failed; the message is the report's."""


class _Run:
    """The results of one plugin, computed as they are asked for, in the suite's order."""

    def __init__(self, target: str, plan: session.Plan, project: Project | None) -> None:
        from lpkit.loading import resolve_target

        self.cls = resolve_target(target).cls
        self.target, self.plan, self.project = target, plan, project
        self.items = session.labels(self.cls, plan)
        self._iterator = session.run(target, self.cls, plan)
        self._results: dict[str, CheckResult] = {}

    def result(self, label: str) -> CheckResult:
        while label not in self._results:
            found = next(self._iterator)
            self._results[found.label] = found
        result = self._results[label]
        if self.project:
            whole = TargetResult(self.target, (), (result,))
            result = expect(whole, self.project.expected).checks[0]
        return result

    def judge_action(self) -> None:
        """After the last check: a plugin that never acted has passed nothing."""
        if session.inactive(self._results.values()):
            raise ConformanceError(session.inactivity_hint(self.plan))


class BoundCheck:
    """One check on one host, ready to run."""

    def __init__(self, run: _Run, code: str, name: str, host: str) -> None:
        self._run = run
        self.code, self.name, self.host = code, name, host
        self.label = f"{code}[{host}]" if host else code

    def __repr__(self) -> str:
        return f"{self.label} {self.name}"

    def run(self) -> None:
        """Raise :class:`ConformanceError` if the plugin breaks the rule; skip the test if nothing can be said."""
        import pytest

        result = self._run.result(self.label)
        if result.status in ("failed", "unexpected_pass", "error"):
            raise ConformanceError("\n".join(["", *check_lines(result)]))
        if result.status == "expected":
            pytest.xfail(result.message)
        if result.status in ("skipped", "blocked"):
            if "never active" in result.message:
                raise ConformanceError(session.inactivity_hint(self._run.plan))
            pytest.skip(f"{result.status}: {result.message}")


def checks(
    target: str,
    *,
    cases: Iterable[Any] | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    hosts: Iterable[str] | None = None,
    seed: int = 0,
    root: Path | None = None,
) -> list[BoundCheck]:
    """Every check for ``target``, to be run one by one or all together.

    Args:
        target: ``module:Class``, an entry point's name, or ``file.py:Class``.
        cases: case objects; by default those of ``[tool.lpkit]``.
        root: the project's folder; by default the current one.
    """
    import json

    standin.prepare()
    project = projects.find(root or Path.cwd())
    own = project if project and project.owns(target) else None
    options = Options(
        cases=tuple(json.dumps(case) for case in cases) if cases is not None else (),
        hosts=tuple(hosts) if hosts is not None else None,
        select=tuple(select),
        ignore=tuple(ignore),
        seed=seed,
    )
    plan = plan_for(options, own)
    if cases is not None and not options.cases:
        plan = replace(plan, cases=())
    run = _Run(target, plan, own)
    return [BoundCheck(run, check.code, check.name, host) for check, host in run.items]


def parametrize_with_checks(target: str, cases: Iterable[Any] | None = None, **settings: Any) -> Callable[[Test], Test]:
    """Decorator for a test function with an argument ``check``; see :func:`checks` for the settings."""
    import pytest

    found = checks(target, cases=cases, **settings)
    return pytest.mark.parametrize("check", found, ids=[repr(check).replace(" ", "-") for check in found])


__all__ = ["BoundCheck", "ConformanceError", "Subject", "checks", "parametrize_with_checks"]
