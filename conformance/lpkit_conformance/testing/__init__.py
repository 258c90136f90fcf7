"""The suite in a plugin's own tests.

As parametrized tests::

    from lpkit_conformance.testing import parametrize_with_checks

    @parametrize_with_checks("my_package.processor:MyProcessor")
    def test_conformance(check):
        check.run()

Cases, hosts and expected failures come from ``[tool.lpkit]`` of the project that pytest runs in. The checks run in
this process, where debuggers and coverage see them; ``lpkit check`` gives the same verdicts in a process apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lpkit_conformance.processes import tree
from lpkit_conformance.settings import project as projects
from lpkit_conformance.testing.shared_run import BoundCheck, ConformanceError, SharedRun, surroundings
from lpkit_conformance.vllm_api import choose

if TYPE_CHECKING:
    from lpkit_conformance.report.show import NotebookShow
    from lpkit_conformance.results import CheckResult, TargetResult

Test = TypeVar("Test", bound=Callable[..., Any])


def checks(
    target: str,
    *,
    cases: Iterable[Any] | None = None,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
    hosts: str | Iterable[str] | None = None,
    seed: int = 0,
    root: Path | None = None,
) -> list[BoundCheck]:
    """Return every check for ``target``, to be run separately or together.

    A target that cannot be loaded gives a single check, which fails.

    Args:
        seed: of the simulated model and the generated programs.
        target: ``module:Class``, an entry point's name, or ``file.py:Class``.
        cases: case objects; by default those of ``[tool.lpkit]``.
        select, ignore: a code or a family (``LP2``), or several.
        hosts: ``v1``, ``v2`` or both; by default those of ``[tool.lpkit]``, or of the class.
        root: the project's folder; by default the current folder.

    Raises:
        UsageError, ProjectError, CaseError: for settings that cannot be used.
    """
    run = _prepare(target, cases, select, ignore, hosts, seed, root)
    return [BoundCheck(run, *item) for item in run.items]


def check(target: str, **settings: Any) -> TargetResult:
    """Return every result for ``target``, as data: what ``lpkit check --json`` writes, computed in this process.

        assert check("my_package.processor:MyProcessor", select="LP2").verdict == "pass"

    Args:
        target: as for :func:`checks`.
        settings: the other arguments of :func:`checks`.

    Raises:
        UsageError, ProjectError, CaseError: for settings that cannot be used.
    """
    return _prepare(target, **settings).everything()


def _prepare(
    target: str,
    cases: Iterable[Any] | None = None,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
    hosts: str | Iterable[str] | None = None,
    seed: int = 0,
    root: Path | None = None,
) -> SharedRun:
    with surroundings() as judged_with:
        from lpkit_conformance.run import Options, check_expected, plan_for

        project = projects.owner(target, projects.find(root or Path.cwd()))
        check_expected(project)
        options = Options(
            cases=() if cases is None else tuple(json.dumps(case) for case in cases),
            hosts=_several(hosts) if hosts is not None else None,
            select=_several(select),
            ignore=_several(ignore),
            seed=seed,
        )
        plan = plan_for(options, project if cases is None else replace(project, cases=()))
        bystanders = frozenset(tree.children())
        plan = replace(plan, standin=judged_with.startswith(choose.STANDIN), bystanders=bystanders)
        return SharedRun(target, plan, project, judged_with)


def _several(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def parametrize_with_checks(target: str, cases: Iterable[Any] | None = None, **settings: Any) -> Callable[[Test], Test]:
    """Decorate a test function with an argument ``check``: it runs once for each check.

    Args:
        target: as for :func:`checks`.
        cases: case objects; by default those of ``[tool.lpkit]``.
        **settings: the other arguments of :func:`checks`.

    Returns:
        A decorator.
    """
    import pytest

    bound = checks(target, cases=cases, **settings)
    return pytest.mark.parametrize("check", bound, ids=[repr(check).replace(" ", "-") for check in bound])


def compute_check(
    code: str, target: Any, *, host: str = "", case: Any = None, others: Iterable[Any] = (), **settings: Any
) -> CheckResult:
    """Return the result of one check on one plugin, without running the checks that it requires.

        assert compute_check("LP203", MyProcessor, case={"extra_args": {"bias": 2.0}}).status == "passed"

    Args:
        code: the check's code.
        target: the class, or a target as for :func:`checks`.
        host: ``v1`` or ``v2``; by default the first that the check judges and the class has an interface for.
        case: a case object; by default an empty case.
        others: further case objects, whose requests share batches with those of the case.
        settings: of ``seed``, ``vocab_size``, ``max_num_seqs`` and ``device``; ``program``: run only this program;
            ``trace``: replay only this recorded trace, given as its name and a pattern.

    Raises:
        UsageError: if the check does not exist, or does not run on this host or class.
        CaseError: for a case that cannot be used.
        LoadError: if the class cannot be loaded.
    """
    with surroundings() as judged_with:
        from lpkit.loading import resolve_target

        from lpkit_conformance.errors import UsageError
        from lpkit_conformance.run import known_code
        from lpkit_conformance.settings.cases import Case
        from lpkit_conformance.settings.plan import Plan
        from lpkit_conformance.suite.in_process import Session

        plan = Plan(
            cases=(case if isinstance(case, Case) else Case.parse(case or {}),),
            others=tuple(item if isinstance(item, Case) else Case.parse(item) for item in others),
            hosts=(host,) if host else None,
            select=(known_code(code, "reference"),),
            standin=judged_with.startswith(choose.STANDIN),
            **settings,
        )
        cls = resolve_target(target) if isinstance(target, str) else target
        session = Session(str(target), cls, plan)
        for check, on in session.items:
            if check.code == code:
                return session.compute(check, on)
        raise UsageError(f"{code} does not run on {cls.__name__}" + (f" on {host}" if host else ""))


def require(result: CheckResult) -> None:
    """Assert that a plugin broke no rule.

        require(compute_check("LP203", MyProcessor, case={"extra_args": {"bias": 2.0}}))

    Args:
        result: of :func:`compute_check`. A plugin that did nothing at all in these operations broke no rule.

    Raises:
        ConformanceError: with the evidence, if the plugin broke the rule, or the check could not run.
    """
    from lpkit_conformance.report.text import check_lines

    __tracebackhide__ = True
    if result.status in ("failed", "advice", "error"):
        raise ConformanceError("\n".join(["", *check_lines(result)]))


def show(
    processors: str | type[Any] | Iterable[str | type[Any]] = (),
    *,
    case: Any = None,
    rules: Any = None,
    prompt: str = "",
    model: str = "",
    host: str = "",
    steps: int = 64,
    seed: int = 0,
    root: Path | None = None,
) -> NotebookShow:
    """Return what processors do to a request, as data: what ``lpkit show`` shows, computed in this process.

        assert show(MyProcessor, case={"extra_args": {"bias": 2.0}}, steps=8).receipts[0].acted == 8

    A notebook displays the result as the page of ``lpkit show``.

    Args:
        processors: classes, or targets as for :func:`checks`; by default those of the project.
        case: a case object; by default those of ``[tool.lpkit]``, or of the declared parameters.
        rules: the steps of a document of rules, which come first.
        prompt: a text; by default one that suits the model.
        model: a folder, or the name of a model in the cache of transformers; by default lpkit's toy.
        host: ``v1`` or ``v2``; by default the newest one whose interface all processors have.
        steps: tokens of the reply at most.
        seed: of the random numbers that choose the tokens.
        root: the project's folder; by default the current folder.

    Raises:
        UsageError, ProjectError, CaseError: there is nothing to show.
    """
    from lpkit_conformance.report.show import NotebookShow
    from lpkit_conformance.show import run

    case, rules = (value if isinstance(value, str) else json.dumps(value) if value else "" for value in (case, rules))
    options = run.ShowOptions(rules, case, prompt, host, steps, seed, model)
    targets = [processors] if isinstance(processors, str | type) else list(processors)
    with surroundings() as judged_with:
        return NotebookShow(**vars(run.show(targets, options, root, judged_with)))


def install_standin() -> None:
    """Put a stand-in in the place of vLLM's modules, for a plugin that imports them where there is no vLLM."""
    from lpkit_conformance.vllm_api.stub import install

    install()


__all__ = [
    "BoundCheck",
    "ConformanceError",
    "check",
    "checks",
    "compute_check",
    "install_standin",
    "parametrize_with_checks",
    "require",
    "show",
]
