"""Runs the checks on one plugin, in this process."""

from __future__ import annotations

import contextlib
import inspect
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lpkit._nearest import did_you_mean
from lpkit.loading import interfaces_of

from lpkit_conformance.catalogue import by_code, chosen, requirements_first
from lpkit_conformance.checks.base import Check, judge
from lpkit_conformance.errors import CaseError
from lpkit_conformance.hosts import PluginError
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.instruments.author_lines import place_of
from lpkit_conformance.oracle.findings import GENERAL_FIX, method_place, raised
from lpkit_conformance.processes import tree
from lpkit_conformance.processes.peer import Peer
from lpkit_conformance.results import CheckResult, Failed, Skipped, Status
from lpkit_conformance.settings.cases import Case, WatchedArgs
from lpkit_conformance.settings.hosts import HOSTS, hosts_of
from lpkit_conformance.settings.plan import Plan


def hosts_for(cls: Any, plan: Plan) -> tuple[str, ...]:
    """The hosts to judge ``cls`` on."""
    wanted = hosts_of(interfaces_of(cls)) if plan.hosts is None else plan.hosts
    return tuple(host for host in HOSTS if host in wanted)


def labels(cls: Any, plan: Plan) -> list[tuple[type[Check], str]]:
    """Every (check, host) of a plan, in running order."""
    hosts = hosts_for(cls, plan)
    checks = chosen(plan)
    if plan.program is not None or plan.trace is not None:
        checks = [check for check in checks if check.code in plan.select]
    return [
        (check, host)
        for check in checks
        for host in (("",) if not check.hosts else [h for h in hosts if h in check.hosts])
    ]


def run(
    target: str,
    cls: Any,
    plan: Plan,
    started: Callable[[str], None] = lambda _: None,
    second: Peer | None = None,
) -> Iterator[CheckResult]:
    """The results, check by check.

    Args:
        target: what the user calls the plugin.
        cls: its class.
        plan: what to run.
        started: is told the label of each check before it runs.
        second: a process started ahead, for the check that compares two; none: it starts its own, and waits for it.
    """
    statuses: dict[str, Status] = dict(plan.done)
    device = torch.device(plan.device)
    strangers = frozenset(tree.children()) if plan.strangers is None else plan.strangers
    if second is not None:
        strangers |= {second.pid}
    subjects: dict[str, list[PluginUnderTest]] = {}

    def subjects_of(host: str) -> list[PluginUnderTest]:
        if host not in subjects:
            subjects[host] = [
                PluginUnderTest(
                    target,
                    cls,
                    host,
                    case,
                    interfaces_of(cls),
                    vocab_size=plan.vocab_size,
                    max_num_seqs=plan.max_num_seqs,
                    device=device,
                    seed=plan.seed,
                    standin=plan.standin,
                    program=plan.program,
                    trace=plan.trace,
                    strangers=strangers,
                    second=second,
                )
                for case in plan.cases
            ]
        return subjects[host]

    for check, host in labels(cls, plan):
        label = f"{check.code}[{host}]" if host else check.code
        if label in statuses:
            continue
        roots = _roots(check, host, statuses)
        if roots:
            result = CheckResult(check.code, check.name, host, "blocked", f"needs {', '.join(sorted(roots))}")
        else:
            started(label)
            result = run_one(check, subjects_of(host), host)
        statuses[label] = result.status
        yield result


def _roots(check: type[Check], host: str, statuses: dict[str, Status]) -> set[str]:
    """The failed checks that ``check`` rests on; what is blocked itself only repeats them."""

    def requires(code: str) -> tuple[str, ...]:
        return by_code()[code].requires if _status(code, host, statuses) == "blocked" else ()

    below = {code: _status(code, host, statuses) for code in requirements_first(check.requires, requires)}
    return {code for code, status in below.items() if status in ("failed", "error")} or {
        code for code, status in below.items() if status == "blocked"
    }


def _status(code: str, host: str, statuses: dict[str, Status]) -> Status | None:
    return statuses.get(f"{code}[{host}]", statuses.get(code))


def run_one(check: type[Check], subjects: Sequence[PluginUnderTest], host: str) -> CheckResult:
    """One check on every case: the worst outcome counts, and a skip only if all cases skip."""
    begun = time.perf_counter()
    results = [_result(check, subject, host) for subject in (subjects[:1] if check.once else subjects)]
    order: tuple[Status, ...] = ("error", "failed", "advice", "passed", "skipped")
    worst = min(results, key=lambda result: order.index(result.status))
    return replace(worst, seconds=round(time.perf_counter() - begun, 4))


def _result(check: type[Check], subject: PluginUnderTest, host: str) -> CheckResult:
    """What a check says about one case."""
    method = check.method if isinstance(check.method, str) else check.method[host]
    try:
        return judge(check, host, lambda: _run(check, subject), lambda: method_place(subject.cls, method))
    except CaseError as error:
        return CheckResult(check.code, check.name, host, "error", str(error))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}"[:300]
        message = f"the check itself failed, a fault of lpkit: {text} ({Path(where.filename).name}:{where.lineno})"
        return CheckResult(check.code, check.name, host, "error", message)


def _run(check: type[Check], subject: PluginUnderTest) -> str | None:
    """Run the check; an exception of the plugin breaks the rule."""
    try:
        return check().run(subject)
    except (Failed, Skipped, CaseError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a plugin may raise what it likes, SystemExit too
        plugins = error if isinstance(error, PluginError) else _plugins(error, subject)
        if plugins is None:
            raise
        finding = raised(subject.cls, plugins)
        raise Failed(finding if plugins.method in check.own_exceptions else replace(finding, fix=GENERAL_FIX)) from None


def _plugins(error: BaseException, subject: PluginUnderTest) -> PluginError | None:
    """An exception that no check expected, as the plugin's if it came from its file."""
    place = place_of(error)
    home = ""
    with contextlib.suppress(OSError, TypeError):
        home = inspect.getsourcefile(subject.cls) or ""
    if home and place.rpartition(":")[0] == home:
        return PluginError("the plugin", f"raised {type(error).__name__}: {error}"[:300], place)
    return None


def _refusal(cls: Any, case: Case) -> str:
    """What the plugin's own validation has against a case."""
    try:
        cls.validate_params(case.params())
    except AttributeError:
        return ""
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def inactivity_hint(plan: Plan, cls: Any) -> str:
    """Why nothing happened, as far as the arguments tell, and what to try."""
    for case in plan.cases:
        refusal = _refusal(cls, case)
        if refusal:
            return f"no case made the plugin change a logit: validate_params refuses {case.text} ({refusal})"
    given = sorted({key for case in plan.cases for key in case.fields.get("extra_args") or {}})
    looked = sorted(WatchedArgs.seen)
    text = "no case made the plugin change a logit"
    if looked:
        text += f"; it looked at extra_args {', '.join(map(repr, looked))}"
    if given:
        text += f", the cases give {', '.join(map(repr, given))}"
    for key in given:
        near = did_you_mean(key, looked) if key not in looked else ""
        text += f" ({key!r}: {near})" if near else ""
    missing = [key for key in looked if key not in given]
    if looked and not missing:
        return f"{text}. Other values may switch it on."
    example = ", ".join(f'"{key}": 1' for key in missing) or "..."
    suggestion = f'{{"extra_args": {{{example}}}}}'
    return f"{text}. Give a case that switches it on: --case '{suggestion}', or cases in [tool.lpkit]."
