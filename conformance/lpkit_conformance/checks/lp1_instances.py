"""LP1: the constructor accepts the engine's arguments, instances share nothing, and no method raises."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from lpkit.loading import CONSTRUCTORS

from lpkit_conformance.checks.base import EVERY_METHOD, STATE, Check
from lpkit_conformance.checks.ladder import differing, everyday, mixed_arrivals, parted, play
from lpkit_conformance.checks.lazily import (
    Host,
    Subject,
    Watch,
    calls,
    compare,
    engine_data,
    findings,
    module_state,
    parts,
    state,
    torch,
    trails,
    verify,
    writes,
)
from lpkit_conformance.explanation import advice, exceptions
from lpkit_conformance.programs.generate import Arrive, Op, Step
from lpkit_conformance.results import Failed, Finding, NeverActive, Skipped
from lpkit_conformance.settings.hosts import EXPORT
from lpkit_conformance.vllm_api.runners import V1


def constructs_on(subject: Subject) -> bool:
    """Return True if the constructor accepts the arguments that the subject's host passes."""
    try:
        parts.default_host(subject, subject.setup.max_num_seqs)
    except calls.PluginError:
        return False
    return True


class LP101(Check):
    """The constructor accepts the engine's arguments.

    V1 calls ``cls(vllm_config, device, is_pin_memory)``, V2 ``cls(vllm_config, req_states)``; every engine
    with the plugin installed does so, even an engine without a tokenizer.

    Why: an exception in the constructor keeps every engine in that environment from starting.

    Fix: accept these arguments, load nothing heavy, and do not require a tokenizer before a request needs it.
    """

    code, name, requires, own_exceptions = "LP101", "constructs", ("LP001",), EVERY_METHOD
    quick = "first"
    as_given = True

    def run(self, subject: Subject) -> str | None:
        for max_num_seqs in (subject.setup.max_num_seqs, 1):
            try:
                parts.default_host(subject, max_num_seqs)
            except calls.PluginError as error:
                finding = findings.raised(subject.plugin.cls, error)
                if subject.setup.host == EXPORT and constructs_on(subject.having(host=subject.setup.interface)):
                    cause, fix = advice.cause("elsewhere", self.code), advice.fix("elsewhere", self.code)
                    raise Failed(replace(finding, cause=cause, fix=fix)) from error
                if words := self._swapped(subject, error):
                    cause, fix = (text("swapped", self.code).format(**words) for text in (advice.cause, advice.fix))
                    raise Failed(replace(finding, cause=cause, fix=fix)) from error
                wants_config = "additional_config` has no entry" in finding.cause
                fix = advice.fix("config", self.code) if wants_config else self._fix(subject, error)
                raise Failed(replace(finding, fix=finding.fix or fix)) from error
        return None

    @staticmethod
    def _swapped(subject: Subject, error: calls.PluginError) -> dict[str, str]:
        """Return the words of the advice if a line takes what this runner passes for what the other does; else {}.

        Only of a class on lpkit's base, which has one constructor for both.
        """
        interface = subject.setup.interface
        kind = "device" if interface == V1 else "LogitsProcRequestState"
        name = exceptions.read_as(error.__cause__, kind) if hasattr(subject.plugin.cls, "stage") else ""
        if not name or bool(re.search("req|state", name)) != (interface == V1):
            return {}
        return {"name": name, "kind": kind, "host": interface.upper(), "signature": CONSTRUCTORS[interface]}

    @staticmethod
    def _fix(subject: Subject, error: calls.PluginError) -> str:
        if error.exception == "TypeError" and "argument" in error.summary and not error.location:
            if hasattr(subject.plugin.cls, "stage"):
                return advice.fix("both", LP101.code)
            signature = CONSTRUCTORS[subject.setup.interface]
            words = {"host": subject.setup.host.upper(), "signature": signature}
            return advice.fix("signature", LP101.code).format(**words)
        missing = "NoneType" in error.summary or "SimpleNamespace" in error.summary
        if not subject.setup.tokenizer and exceptions.holds_tokenizer(error.__cause__):
            key = "tokenizer"
        else:
            key = "files" if isinstance(error.__cause__, OSError) else "field" if missing else "any engine"
        return advice.fix(key, LP101.code)


class LP108(Check):
    """Two instances in one process do not share state.

    Data-parallel engines, tests and notebooks create several instances of one class.

    Why: a dictionary defined as a class attribute is shared by all instances.

    Fix: create state in ``__init__``.
    """

    code, name, requires, needs_action = "LP108", "instances-are-separate", ("LP101", "LP301"), True
    method, own_exceptions = STATE, EVERY_METHOD
    suspects = ("LP602", "LP605")

    def run(self, subject: Subject) -> str | None:
        parties: tuple[tuple[Op, ...], ...] = (
            tuple(mixed_arrivals(4)),
            (Arrive("x", 3), Arrive("y", None), Arrive("z", 1)),
        )
        steps = (Step(),) * 3

        def served(party: tuple[Op, ...]) -> list[calls.Observation]:
            with subject.as_imported():
                return list(parts.default_host(subject, 8).run((*party, *steps)))

        expected = [served(party) for party in parties]
        if any(parted(run, served(party)) for run, party in zip(expected, parties, strict=True)):
            raise Skipped("the plugin is not reproducible, which LP601 judges")
        shared = advice.cause("shared", self.code)
        hosts: list[Host] = []
        try:
            for number, step in enumerate(steps):
                if number < len(parties):  # the second is made while the first is in use
                    hosts.append(parts.default_host(subject, 8))
                for instance, host in enumerate(hosts):
                    arrivals = parties[instance] if host.step == 0 else ()
                    for seen in host.run((*arrivals, step)):
                        alone = expected[instance][host.step - 1]
                        if difference := compare.first_difference(alone.before, alone.after, seen.after):
                            who = seen.rows[difference[0]].request
                            summary = f"request {who} gets different logits while another instance is in use"
                            where = {"request": who, "instance": str(instance + 1), "step": str(seen.step)}
                            raise Failed(_sharing(subject, differing(summary, where, difference, shared).finding))
        except calls.PluginError as error:
            finding = findings.raised(subject.plugin.cls, error)
            summary = f"while another instance is in use, {finding.summary}"
            raise Failed(_sharing(subject, replace(finding, summary=summary, cause=shared))) from error
        if all(torch.equal(seen.before, seen.after) for runs in expected for seen in runs):
            raise NeverActive
        return None


def _sharing(subject: Subject, finding: Finding) -> Finding:
    """Return the finding with what an instance changes in its class or modules, and where that is declared.

    Of what stands in a table, such as a preset, it is the line that changes it.
    """

    def serve(host: Host) -> None:
        with suppress(calls.PluginError):
            list(host.run((*mixed_arrivals(4), Step(2))))

    with subject.as_imported():
        host, owners = parts.default_host(subject, 8), list(module_state.owners(subject.plugin.cls))
        now = state.State.of(host.processor, owners)
        then = now.copied()
        shared = [name for name, (owner, _) in now.places.items() if name in now.holders or not isinstance(owner, dict)]
        held = {name: _deep(then.get(name)) for name in shared}
        serve(host)
        for name, before in held.items():
            after = now.get(name)
            if state.same(before, after):
                continue
            owner, key = now.holders.get(name, now.places[name])
            kind, of, line = state.kind_of(owner, key), name, findings.declaration(owner, key)
            if kind == "default":
                name = state.changed_default(vars(owner)[key], before, after)
            elif isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
                entry = next(entry for entry in before if not state.same(before[entry], after[entry]))
                if isinstance(after[entry], list | dict | set):
                    kind, name = "entry", f"{name}[{entry!r}]"
            subject.plugin.restore_modules()
            made = partial(parts.default_host, subject, 8)
            changing = str(writes.follow(subject.plugin.cls, made, partial(now.get, of), serve).last or "")
            line = changing or line if kind == "entry" else line
            words = {"name": name, "of": of, "at": f", in line {changing.rpartition(':')[2]}" if changing else ""}
            cause, fix = (text(kind, "LP108").format(**words) for text in (advice.cause, advice.fix))
            return replace(finding, state=name, location=line or finding.location, cause=cause, fix=fix)
    return finding


def _deep(value: Any) -> Any:
    """Return a container with copies of the containers in it."""
    if type(value) is dict:
        return {key: _deep(item) for key, item in value.items()}
    return [*map(_deep, value)] if type(value) is list else value


class LP109(Check):
    """No method raises an exception or hangs in everyday steps.

    Requests with and without the plugin arrive, get tokens and leave, in mixed batches and in batches of a single kind.
    Exceptions that need rarer events are reported by the checks about those events.

    Why: vLLM catches no exception of a logits processor. The first one stops the engine and fails every request on it.

    Fix: correct the line where it is raised. Often this line assumes a dictionary key, an argument or a row. Requests
    without your arguments pass through it as well.
    """

    code, name, requires, own_exceptions = "LP109", "raises-nothing", ("LP101",), EVERY_METHOD

    def run(self, subject: Subject) -> str | None:
        try:
            verify.survive(subject, everyday())
        except Failed as failure:
            call = (
                findings.callable_of(subject)[0] if re.search(exceptions.MISCALLED, failure.finding.summary) else None
            )
            if third := [*inspect.signature(call).parameters][2:] if call else []:
                cause, fix = (text("three counted", "exception") for text in (advice.cause, advice.fix))
                cause = advice.cause("third", self.code).format(name=third[0], cause=cause)
                raise Failed(replace(failure.finding, cause=cause, fix=fix, state=third[0])) from None
            if subject.setup.interface == V1 and (changed := self._changed_list(subject)):
                cause = advice.cause("before", self.code).format(summary=changed.summary, cause=changed.cause)
                finding = replace(failure.finding, cause=cause, fix=changed.fix)
                line = changed.location
                raise Failed(replace(finding, location=line, state=trails.set_by(line))) from None
            raise
        return None

    @staticmethod
    def _changed_list(subject: Subject) -> Finding | None:
        """Return the finding for a list of the engine's that is changed before the exception."""

        def watched(host: Host, follow: bool) -> Watch:
            return engine_data.leaving_lists(subject, host.pool.all_requests, follow=follow)

        with suppress(calls.PluginError, Skipped):
            try:
                play(subject, everyday().ops, watched)
            except Failed as failure:
                return failure.finding
        return None
