"""Runs the checks on one plugin, in this process."""

from __future__ import annotations

import contextlib
import inspect
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from lpkit.loading import interfaces_of

from lpkit_conformance.activity.acting import activity
from lpkit_conformance.activity.admission import let_in, raising_kinds, refused_kinds
from lpkit_conformance.activity.search import search
from lpkit_conformance.checks.base import Check, Engine, Rule, judge
from lpkit_conformance.checks.catalogue import by_code, chosen
from lpkit_conformance.checks.ladder import LadderCheck
from lpkit_conformance.errors import CaseError, StandinError
from lpkit_conformance.expectation.ranks import Choice, first_rank
from lpkit_conformance.explanation.advice import fix
from lpkit_conformance.explanation.findings import at_fault, raised
from lpkit_conformance.explanation.room import with_room
from lpkit_conformance.hosts import PluginError
from lpkit_conformance.instruments.module_state import ModuleState
from lpkit_conformance.instruments.process_settings import settings_kept
from lpkit_conformance.processes import gpu, tree
from lpkit_conformance.results import Blocked, CheckResult, Failed, Skipped, Status, label_of
from lpkit_conformance.settings.cases import FOREIGN_ARGS, Case, Requests
from lpkit_conformance.settings.hosts import HOSTS, RUNNER_HOSTS, hosts_of
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.plugin import Plugin
from lpkit_conformance.subject.setup import Setup
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.agenda import Agenda
from lpkit_conformance.suite.inactive import alike, silence, why_inactive
from lpkit_conformance.suite.reached import Reached, blocks, further, grow_old, reaching, serve, unreached
from lpkit_conformance.traces.patterns import RECORDED
from lpkit_conformance.vllm_api.runners import V1
from lpkit_conformance.vllm_api.tokenizer import words_in

EVERYDAY = 8
"""Output tokens with which a plugin that raises is judged as it is: its exception may have many reasons."""


class Session:
    """The checks of a plan on one plugin.

    Args:
        target: what the user calls the plugin.
        first: choices of the first rank, if this process stands for the second.

    Attributes:
        interfaces: the interfaces that the class implements.
        hosts: the hosts that judge the plugin.
        items: every check with its host, in running order.
        agenda: the same by label, with the results so far.
        notes: what the run did that was not asked for, in sentences.
        searching: called when a search for requests begins, with None, and with the requests when it ends.
    """

    engine: ClassVar[Engine] = "reference"

    def __init__(self, target: str, cls: Any, plan: Plan, first: dict[str, list[Choice]] | None = None) -> None:
        self.target, self.cls, self.plan, self._first = target, cls, plan, first
        self.interfaces = interfaces_of(cls)
        checks = chosen(plan, self.engine)
        self.hosts = self._hosts(checks)
        if plan.program is not None or plan.trace is not None:
            checks = [check for check in checks if check.code in plan.select]
        self.items = [
            (check, host)
            for check in checks
            for host in (("",) if not check.hosts else [h for h in self.hosts if h in check.hosts])
        ]
        self._items = {label_of(check.code, host): (check, host) for check, host in self.items}
        self.agenda = Agenda({label: self._required(check, host) for label, (check, host) in self._items.items()})
        self._bystanders = frozenset(tree.children()) if plan.bystanders is None else plan.bystanders
        self._modules = ModuleState.of(cls)
        self._given: dict[str, tuple[Subject, ...]] = {}
        self._served: dict[str, tuple[Subject, ...]] = {}
        self.notes: list[str] = []
        # A failure that runs again has its case.
        again = plan.program is not None or (plan.trace is not None and plan.trace[1] != RECORDED)
        self._requests = plan.requests or (Requests(plan.cases) if again else None)
        self.searching: Callable[[Requests | None], None] = lambda _: None

    def _hosts(self, checks: Sequence[type[Rule]]) -> tuple[str, ...]:
        """Return the plan's hosts; else hosts of the class's interfaces, on which the selected checks run."""
        if self.plan.hosts is not None:
            return tuple(host for host in HOSTS if host in self.plan.hosts)
        selected = {
            host for check in checks if self.plan.select and self.plan.wants(check.code) for host in check.hosts
        }
        return hosts_of(self.interfaces, selected if selected and selected.isdisjoint(RUNNER_HOSTS) else None)

    def results(self) -> Iterator[CheckResult]:
        """Yield the results, check by check."""
        return map(self.result, self.agenda.requires)

    def result(self, label: str) -> CheckResult:
        """Return the result of a check, after the checks that it requires; each is computed once.

        A failure of a required check blocks it.
        """
        agenda = self.agenda
        if label not in agenda.results:
            for other in agenda.requires[label]:
                self.result(other)
            check, host = self._items[label]
            blocked = agenda.blocked(label)
            agenda.results[label] = self._blocked(check, host, blocked) if blocked else self.judged(label)
        return agenda.results[label]

    def _blocked(self, check: type[Rule], host: str, message: str) -> CheckResult:
        """Return the result of a blocked check.

        If the plugin only is not reproducible, the rows of requests that do not use it can still be wrong.
        """
        result = CheckResult(check.code, check.name, host, "blocked", message)
        if result.roots != {"LP601"} or not issubclass(check, LadderCheck):
            return result
        of_strangers = _result(check, replace(self.subjects(host)[0], strangers=True), host)
        return of_strangers if of_strangers.status == "failed" else result

    def judged(self, label: str) -> CheckResult:
        """Return the result of a check, even if others failed."""
        return self.compute(*self._items[label])

    def _required(self, check: type[Rule], host: str) -> list[str]:
        """Return the labels that a check requires: about the class, about this host, or else about any host."""
        labels = []
        for code in check.requires:
            on = (host,) if host in by_code(self.engine)[code].hosts else ("", *HOSTS)
            labels += [label for label in (label_of(code, name) for name in on) if label in self._items]
        return labels

    def compute(self, check: type[Rule], host: str) -> CheckResult:
        """Judge every case: the worst outcome counts, and a skip only if all cases skip."""
        begun = time.perf_counter()
        subjects = self.given(host) if check.as_given else self.subjects(host)
        once = check.once or (self.plan.quick and check.quick != "each")
        results = [_result(check, subject, host) for subject in (subjects[:1] if once else subjects)]
        order: tuple[Status, ...] = ("error", "failed", "advice", "blocked", "passed", "skipped")
        worst = min(results, key=lambda result: order.index(result.status))
        return replace(worst, seconds=round(time.perf_counter() - begun, 4))

    def given(self, host: str) -> tuple[Subject, ...]:
        """Return the plugin on a host with each of the given cases, before any request was served."""
        if host not in self._given:
            self._given[host] = self._make(host, Requests(self.plan.cases))
        return self._given[host]

    def subjects(self, host: str) -> tuple[Subject, ...]:
        """Return the plugin on a host with each case that makes it act, as far as there is one."""
        requests = self.requests
        if host not in self._served:
            self._served[host] = self._make(host, requests)
        return self._served[host]

    @property
    def requests(self) -> Requests:
        """The requests that the checks send: found once, the same whichever check asks first."""
        if self._requests is None:
            self.searching(None)
            with settings_kept(), contextlib.nullcontext() if self.plan.quick else reaching(self.cls) as ran:
                try:
                    self._requests = self._find()
                    if ran is not None and self.hosts:
                        self._reach(ran)
                    self.notes += filter(None, map(alike, self.subjects("")))
                except Blocked:  # a method that it takes does not return
                    self._requests = Requests(self.plan.cases, FOREIGN_ARGS[:1])
            self.searching(self._requests)
        return self._requests

    def _reach(self, ran: Reached) -> None:
        """Add a case if it reaches lines of the class that did not run, and note the lines that still did not run."""
        assert self._requests is not None
        for subject in self.subjects(self.hosts[0]):
            activity(subject)
        for host in self.hosts:
            if blocks(self.cls, ran):
                serve(self.subjects(host)[0])
        if added := further([self.subjects(host) for host in self.hosts], ran):
            case, why = added
            self.notes.append(f"case {case.text} was added: {why}")
            self._requests = replace(self._requests, cases=(*self._requests.cases, case))
            self._served.clear()
        if V1 in self.hosts:
            grow_old(self.subjects(V1)[0], ran)
        self.notes += unreached(self.cls, ran)

    def _find(self) -> Requests:
        """Return requests that the plugin lets in and acts on: the given requests, or others."""
        foreign = let_in(self.given(self.hosts[0])[0]) if self.hosts else FOREIGN_ARGS
        if foreign != FOREIGN_ARGS:
            share = "some requests" if foreign else "requests"
            self.notes.append(f"{share} that do not use the plugin are left out, as it raises for them: see LP102")
        judged = self.hosts if self.plan.trace is None else ()  # a trace is replayed as it is: no check says why
        subjects_given = [subject for host in judged for subject in self.given(host)]
        raising = {kind: raised for subject in subjects_given for kind, raised in raising_kinds(subject).items()}
        relatives = [kind for kind, (words, _) in raising.items() if kind == words]
        left_out = [(words, error) for words, error in raising.values() if words not in relatives]
        if relatives:
            more = f" and {len(relatives) - 1} more" if relatives[1:] else ""
            left_out.append((relatives[0] + more, raising[relatives[0]][1]))
        self.notes += [f"requests with {words} are left out: {_raises(error)}" for words, error in left_out]
        refused = {kind: words for subject in self.given("") for kind, words in refused_kinds(subject).items()}
        self.notes += [
            f"requests with {words} are left out, as `validate_params` refuses them" for words in refused.values()
        ]
        given = Requests(self.plan.cases, foreign, (*raising, *refused))
        subjects = {host: self._make(host, given) for host in self.hosts}
        lengths = [of.raised for host in judged if (of := activity(subjects[host][0])).raised]
        error, longest = min(lengths, key=lambda raised: raised[1], default=(None, 0))
        if error and not raising and longest > EVERYDAY:
            given = replace(given, longest=longest)
            subjects = {host: self._make(host, given) for host in self.hosts}
            self.notes.append(f"outputs of more than {longest} tokens are left out: {_raises(error)}")
        cases = list(given.cases)
        silent: list[Case] = []
        for nth, case in enumerate(given.cases):
            for host in self.hosts:
                subject = subjects[host][nth]
                better = search(subject)
                if better is not None:
                    cases[nth] = better.case
                    self.notes.append(f"case {better.case.text} was used in place of {case.text}: {better.why}")
                if better is not None or activity(subject).acts:
                    break
            if cases[nth] is case and all(activity(of_host[nth]).silent for of_host in subjects.values()):
                silent.append(case)
        others = tuple(cases) != given.cases
        if others or any(activity(subjects[self.hosts[0]][nth]).acts for nth in range(len(cases)) if self.hosts):
            self.notes += map(silence, silent)  # else the run is inactive, and says so
        if others:
            return replace(given, cases=tuple(cases))
        self._served |= subjects  # what is known of them by now is of use to the checks
        return given

    def first_rank(self) -> dict[str, list[Choice]] | None:
        """Return the choices that the second rank must make, too; None if the plugin raises."""
        with settings_kept(), contextlib.suppress(PluginError, Blocked, StandinError):
            return first_rank(self.subjects("")[0])
        return None

    def acting_cases(self) -> list[Case]:
        """Return the given cases that make the plugin act; if none does, cases that were found instead."""
        given = [self._make(host, replace(self.requests, cases=self.plan.cases)) for host in self.hosts]
        acting = [
            case for nth, case in enumerate(self.plan.cases) if any(activity(of_host[nth]).acts for of_host in given)
        ]
        return acting or list(self.requests.cases)

    @property
    def words(self) -> tuple[str, ...]:
        """Words that the tokenizer has tokens for: a single tokenizer serves all cases."""
        return words_in([case.fields for case in self.plan.cases])

    def _make(self, host: str, requests: Requests) -> tuple[Subject, ...]:
        plan = self.plan
        plugin = Plugin(self.target, self.cls, plan.release, self._modules)
        return tuple(
            Subject(
                plugin,
                Setup(
                    host,
                    case,
                    plan.vocab_size,
                    plan.max_num_seqs,
                    torch.device(plan.device),
                    plan.seed,
                    plan.standin,
                    vocabulary=self.words,
                    # An added case reaches lines that no other does: it plays all programs.
                    turn=(0, 1) if plan.quick or nth >= len(plan.cases) else (nth, len(plan.cases)),
                    others=(*requests.cases[:nth], *requests.cases[nth + 1 :], *plan.others),
                    program=plan.program,
                    trace=plan.trace,
                    model=plan.model,
                    tokenizer=plan.tokenizer,
                    bystanders=self._bystanders,
                    first_rank=self._first,
                ),
                requests.foreign,
                requests.without,
                requests.longest,
            )
            for nth, case in enumerate(requests.cases)
        )

    def hint(self) -> str:
        """Explain why nothing happened, or too little, as far as the arguments tell, and what to try."""
        return why_inactive([subject for host in ("", *self.hosts) for subject in self.subjects(host)])


def _raises(error: PluginError) -> str:
    """Return in words that the plugin raises for requests that are left out: the check of that may be blocked."""
    line = f" ({Path(error.location).name})" if error.location else ""
    return f"for them, {error.method} {error.summary}{line}"


def _result(check: type[Rule], subject: Subject, host: str) -> CheckResult:
    """Return a check's result for one case."""
    method = check.method if isinstance(check.method, str) else check.method[host]
    result = guarded(
        check,
        host,
        lambda: judge(check, host, lambda: _run(check, subject), lambda: at_fault(subject, method)),
    )
    error = gpu.error_of(subject.setup.device)
    if not error or result.status == "failed":
        return result
    finding = raised(subject.plugin.cls, PluginError(method, f"broke the GPU: {error}", fix=fix("gpu")))
    return CheckResult(check.code, check.name, host, "failed", finding.summary, finding)


def guarded(check: type[Rule], host: str, judged: Callable[[], CheckResult]) -> CheckResult:
    """Return the result of ``judged``; an error, not a finding, if the case cannot be used or lpkit is at fault."""
    try:
        return judged()
    except (CaseError, StandinError) as error:
        return CheckResult(check.code, check.name, host, "error", str(error))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}"[:300]
        message = f"the check itself failed, a bug in lpkit: {text} ({Path(where.filename).name}:{where.lineno})"
        return CheckResult(check.code, check.name, host, "error", message)


def _run(check: type[Rule], subject: Subject) -> str | None:
    """Run the check; an exception of the plugin breaks the rule."""
    assert issubclass(check, Check)
    try:
        # What a plugin or a check leaves behind must not be there in the next check.
        with settings_kept(), subject.as_imported():
            return check().run(subject)
    except (Failed, Skipped, Blocked, CaseError, StandinError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a plugin may raise what it likes, SystemExit too
        plugins = error if isinstance(error, PluginError) else _plugins(error, subject)
        if plugins is None:
            raise
        finding = raised(subject.plugin.cls, plugins)
        if subject.setup.host and plugins.exception:
            finding = with_room(finding, subject, plugins)
        if not finding.fix and plugins.method not in check.own_exceptions:
            finding = replace(finding, fix=fix("unexplained"))
        raise Failed(finding) from None


def _plugins(error: BaseException, subject: Subject) -> PluginError | None:
    """Return an exception that no check expected as the plugin's, if it came from the plugin's file."""
    raised_here = PluginError.of("the plugin", error)
    home = ""
    with contextlib.suppress(OSError, TypeError):
        home = inspect.getsourcefile(subject.plugin.cls) or ""
    return raised_here if home and raised_here.location.rpartition(":")[0] == home else None
