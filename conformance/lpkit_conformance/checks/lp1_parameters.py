"""LP1: per-request parameters."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lpkit.sampling_params import SamplingParams

from lpkit_conformance.checks.base import STATE, Check
from lpkit_conformance.checks.lazily import (
    Host,
    Subject,
    acting,
    admission,
    calls,
    findings,
    odd_arguments,
    parts,
    torch,
    writes,
)
from lpkit_conformance.errors import StandinError
from lpkit_conformance.explanation import advice, exceptions
from lpkit_conformance.programs.generate import Arrive, Op, Preempt, Resume, Step
from lpkit_conformance.results import Blocked, Failed, Finding, Skipped
from lpkit_conformance.settings.cases import make_params
from lpkit_conformance.settings.derived import derived_cases
from lpkit_conformance.settings.hosts import hosts_of
from lpkit_conformance.vllm_api.releases import VALIDATED_SINCE


def lone_request(subject: Subject, params: SamplingParams, variant: int | None = 0) -> Host:
    """Return a host with a lone request with exactly these parameters."""
    host = parts.default_host(subject, 4)
    host.pool.arrive(Arrive("a", variant))
    host.pool.running["a"].request.params = subject.completed(params)
    return host


LIFE: tuple[Op, ...] = (Step(3),)
LATER: tuple[Op, ...] = (Preempt("a"), Resume("a"), Step())
"""The first steps of :func:`lone_request`, and how it comes back."""


def serve(subject: Subject, params: SamplingParams, variant: int | None = 0) -> list[calls.Observation]:
    """Serve a lone request for a few steps; return its logits."""
    return list(lone_request(subject, params, variant).run(LIFE))


def changing(subject: Subject, params: SamplingParams, variant: int | None) -> str:
    """Return ``file:line`` of the author's line that changes the parameters of a request that also resumes.

    Empty if it is unknown.
    """
    host = lone_request(subject, params, variant)
    wrote = writes.follow(
        subject.plugin.cls, lambda: host, lambda: params.extra_args, lambda _: [*host.run((*LIFE, *LATER))]
    )
    return str(wrote.last or "")


def refused(
    subject: Subject,
    params: SamplingParams,
    error: BaseException,
    summary: str,
    where: dict[str, str],
    expected: str,
    cause: str = "",
    fix: str = "",
) -> Failed:
    """Return the failure for an exception of ``validate_params`` for these parameters."""
    got, kind = f"{type(error).__name__}: {error}"[:300], ""
    if _needs_an_instance(subject, params, error):
        cause, fix, kind = advice.cause("front end"), advice.fix("front end"), type(error).__name__
    line = calls.location_of(error)
    return Failed(Finding(summary, where, expected, got, cause=cause, fix=fix, location=line, exception=kind))


def _needs_an_instance(subject: Subject, params: SamplingParams, error: BaseException) -> bool:
    """Return True if ``validate_params`` answers otherwise once an instance was made."""
    host = next(iter(hosts_of(subject.plugin.interfaces)), "")
    with contextlib.suppress(calls.PluginError, Blocked, StandinError):
        if host and subject.plugin.refusal(params) is not None:
            parts.drive(subject.having(host=host), 2)
            again = subject.plugin.refusal(params)
            return again is None or (isinstance(again, ValueError) and not isinstance(error, ValueError))
    return False


class LP102(Check):
    """Requests that do not use the plugin are accepted.

    ``validate_params`` and the methods that add a request see every request of the server: without ``extra_args``,
    with an empty dictionary, with other plugins' keys, alone or next to this plugin's.

    Why: a plugin that refuses unknown keys makes the server reject everyone else's requests.

    Fix: begin with ``args = params.extra_args or {}`` and return if it contains none of your keys.
    """

    code, name, hosts, requires, method = "LP102", "accepts-others", (), ("LP001",), "validate_params"
    quick = "first"
    since = VALIDATED_SINCE
    as_given = True

    def run(self, subject: Subject) -> str | None:
        for refusal in admission.refusals(subject):
            raise Failed(self._finding(subject, refusal.error, refusal.args))
        for salt in range(4 if subject.plugin.accepts(subject.setup.case.params()) else 0):
            params = subject.asked(0, salt=salt)
            if (error := subject.plugin.refusal(params)) is None:
                continue
            alone = copy.copy(params)
            alone.extra_args = copy.deepcopy(subject.setup.case.fields.get("extra_args"))
            refused_alone = not subject.plugin.accepts(alone)
            if refused_alone and isinstance(error, ValueError):  # it may need fields that the case lacks
                continue
            where, expected = {"extra_args": repr(params.extra_args)}, "no exception, as without the other plugin's"
            summary = "validate_params refuses the case when the request has another plugin's arguments too"
            fix = advice.fix("other keys", self.code)
            if refused_alone:
                where = {"max_tokens": repr(params.max_tokens), "seed": repr(params.seed)}
                summary, expected = "validate_params fails for the case as a server may send it", "no exception"
                fix = advice.fix("fields", self.code)
            raise refused(subject, params, error, summary, where, expected, fix=fix)
        return None

    @staticmethod
    def _finding(subject: Subject, error: BaseException, args: Mapping[str, Any] | None) -> Finding:
        if isinstance(error, calls.PluginError):
            finding = findings.raised(subject.plugin.cls, error)
            summary = f"{error.method} fails for a request that does not use the plugin: it {error.summary}"
            return replace(
                finding, summary=summary, where={**finding.where, "extra_args": repr(args)}, cause="", fix=""
            )
        name, fix, cause = "", "", exceptions.read(type(error).__name__, str(error), error).cause
        if isinstance(error, ValueError):
            name, value = exceptions.tested(error)
            cause = advice.cause("default" if name else "anyone", LP102.code).format(name=name, value=value)
        if _needs_an_instance(subject, make_params({"extra_args": copy.deepcopy(args)}), error):
            cause, fix = advice.cause("front end"), advice.fix("front end")
        return Finding(
            "validate_params refuses a request that does not use the plugin",
            {"extra_args": repr(args)},
            "no exception",
            f"{type(error).__name__}: {error}"[:300],
            cause=cause,
            fix=fix,
            location=calls.location_of(error),
            exception=type(error).__name__,
            state=name,
        )


ANSWERED_400 = (TypeError, OverflowError)
"""Exceptions besides ``ValueError`` that vLLM's server takes for the client's mistake, for now."""


class LP103(Check):
    """Bad arguments are refused with ``ValueError`` and nothing else.

    vLLM turns ``ValueError`` into HTTP 400 for that request. So it does with ``TypeError`` and ``OverflowError``, by
    handlers that its source marks for removal: these are advice. Anything else is an internal server error.

    Why: the client learns that the server failed, or how Python did, and not what to change.

    Fix: check types before values, or declare the arguments as ``lpkit.Params``.
    """

    code, name, hosts, requires, method = "LP103", "raises-value-error", (), ("LP001",), "validate_params"
    quick = "first"
    since = VALIDATED_SINCE
    as_given = True

    def run(self, subject: Subject) -> str | None:
        tried, mild = 0, None
        if not subject.setup.case.fields.get("extra_args"):
            # Before the plugin is known to construct, no case has been found by trying.
            derived = derived_cases(subject.plugin.cls, subject.plugin.accepts)
            subject = subject.having(case=derived[0]) if derived else subject
        for key, value, params in odd_arguments.odd_requests(subject):
            tried += 1
            error = subject.plugin.refusal(params)
            if error is not None and not isinstance(error, ValueError):
                summary = f"validate_params raises {type(error).__name__} for {key}={value!r}"
                where = {"extra_args": repr(params.extra_args)}
                failure = refused(subject, params, error, summary, where, "ValueError, or acceptance")
                if not isinstance(error, ANSWERED_400):
                    raise failure
                mild = mild or Failed(failure.finding, advice=True)
        if mild is not None:
            raise mild
        if not tried:
            raise Skipped("the case has no extra_args to vary")
        return f"{tried} odd values"


class LP104(Check):
    """An accepted request does not fail later.

    A request that ``validate_params`` accepted completes its whole life cycle without an exception. This includes
    requests with odd arguments, without a vLLM field that the case names, such as ``stop_token_ids``, or without one of
    its arguments, and greedy requests, resumed ones, those with a seed, stop token ids, ``min_tokens`` or another field
    that servers set, and outputs of some length. The other checks leave out a kind for which the plugin raises.

    Why: an exception in ``update_state``, ``add_request`` or ``apply`` stops the engine for all requests: one
    client's 2**63 or out-of-vocabulary token id is an outage for everyone.

    Fix: refuse it in ``validate_params``. The vocabulary size is not known there: compare token ids when the request
    is added (``vllm_config.model_config.get_vocab_size()``, ``req_states.vocab_size``), and leave the logits of a
    request with an invalid id unchanged.
    """

    code, name, requires = "LP104", "accepted-then-works", ("LP101", "LP301")
    quick = "first"

    def run(self, subject: Subject) -> str | None:
        tried = 0
        for kind, error in admission.raising_kinds(subject).values():
            finding = findings.raised(subject.plugin.cls, error)
            summary = f"{error.method} fails for a request with {kind}: it {error.summary}"
            where, fix = {**finding.where, "request": kind}, self._fix(subject, error)
            raise Failed(replace(finding, summary=summary, where=where, fix=fix))
        if subject.longest and (raised := acting.activity(replace(subject, longest=None)).raised):
            error, outputs = raised
            finding = findings.raised(subject.plugin.cls, error)
            summary = f"{error.method} fails for requests with {outputs} output tokens: it {error.summary}"
            raise Failed(replace(finding, summary=summary, fix=finding.fix or advice.fix("alone", "raised")))
        for served in odd_arguments.odd_served(subject):
            tried += served.refusal is None
            if served.error is not None:
                finding, error = findings.raised(subject.plugin.cls, served.error), served.error
                helpful = finding.fix not in (
                    "",
                    *(advice.fix(key, "exception") for key in ("no token", "one beyond")),
                )
                unchecked = [] if helpful else [advice.cause("unchecked", self.code)]
                then = f"{error.method} {error.summary}"
                raise Failed(
                    replace(
                        finding,
                        summary=f"{served.argument} is accepted by validate_params, then {then}",
                        where={**finding.where, "argument": served.argument},
                        cause=": ".join([*unchecked, *filter(None, [finding.cause])]),
                        fix=finding.fix if helpful else self._fix(subject, error),
                    )
                ) from error
        if not tried:
            raise Skipped("validate_params accepted none of the odd values")
        return f"{tried} odd values accepted"

    def _fix(self, subject: Subject, error: calls.PluginError) -> str:
        """Return the fix for an exception; the check's own, which is empty here, for an index into the vocabulary."""
        beyond = re.search(exceptions.BEYOND, error.summary)
        if beyond and beyond[2] == str(subject.setup.vocab_size):
            return ""
        return findings.bounded(subject) or advice.fix("refused", self.code)


class LP105(Check):
    """The plugin does not modify the request's parameters.

    ``SamplingParams`` and its ``extra_args`` belong to the engine and may be shared by several requests. This
    also applies to requests that do not use the plugin, and to arguments in an odd form, such as unsorted lists.

    Why: a popped key is missing when the request resumes after preemption, and for requests that share the object.

    Fix: only read the parameters; copy values that you want to change.
    """

    code, name, requires, method = "LP105", "leaves-params", ("LP101", "LP301"), STATE

    def run(self, subject: Subject) -> str | None:
        requests: list[tuple[int | None, SamplingParams]] = [
            *((variant, subject.asked(variant)) for variant in subject.variants),
            *((None, subject.asked(None, salt=salt)) for salt in range(4 if subject.foreign else 0)),
        ]
        for variant, params in requests:
            admitted = subject.completed(copy.deepcopy(params))
            before = repr(admitted), copy.deepcopy(dict(admitted.extra_args or {}))
            refusal = subject.plugin.refusal(params)
            if refusal is not None:
                if variant is None:
                    continue  # LP102 judges that
                raise Skipped("validate_params refuses the case")
            host = lone_request(subject, params, variant)
            list(host.run(LIFE))
            if variant is not None:
                with contextlib.suppress(calls.PluginError):  # LP211 judges that
                    list(host.run(LATER))
            if (repr(params), dict(params.extra_args or {})) != before:
                raise self._changed({}, before[1], params, changing(subject, admitted, variant))
        for served in odd_arguments.odd_served(subject):
            if served.changed is not None:
                again = subject.completed(copy.deepcopy(served.params))
                again.extra_args = copy.deepcopy(served.changed)
                argument = {"argument": served.argument}
                raise self._changed(argument, served.changed, served.params, changing(subject, again, 0))
        return None

    def _changed(self, where: dict[str, str], before: Any, params: SamplingParams, line: str) -> Failed:
        popped = advice.sign(self.code, line)
        now = dict(params.extra_args or {})
        changed = [key for key in now if key not in before or now[key] != before[key]]
        name = f"`extra_args[{changed[0]!r}]`" if changed else "`extra_args`"
        cause = (
            advice.cause(popped, self.code) if popped else advice.cause("engine-data").format(name=name, variable="")
        )
        return Failed(
            "the plugin changed the request's SamplingParams" + "".join(f", with {name}" for name in where.values()),
            where,
            f"extra_args {before!r}"[:300],
            f"extra_args {now!r}"[:300],
            cause=cause,
            fix=advice.fix(popped, self.code) if popped else "",
            location=line,
        )


class LP106(Check):
    """The case is accepted, and has the same effect after a round trip through JSON.

    vLLM's server knows texts, numbers and lists of them in ``vllm_xargs``: it passes ``True`` on as 1, and a tuple
    arrives as a list.

    Why: arguments that work offline, but are refused or have no effect online, are found by users, not by tests.

    Fix: accept 0 and 1 for bools, and lists for tuples and sets; or correct the case, if it is invalid.
    """

    code, name, hosts, requires, method = "LP106", "accepts-the-case", (), ("LP001",), "validate_params"
    as_given = True

    def run(self, subject: Subject) -> str | None:
        plain = subject.setup.case.fields
        spoken = copy.deepcopy(dict(plain))
        if spoken.get("extra_args"):
            spoken["extra_args"] = _as_msgpack(spoken["extra_args"])
        ways = (("as written", plain, "refused"), ("as vLLM's server passes it on", spoken, "strict"))
        for how, fields, key in ways:
            params = make_params(copy.deepcopy(fields))
            error = subject.plugin.refusal(params)
            if error is not None:
                summary, where = f"validate_params refuses the case {how}", {"case": subject.setup.case.text}
                cause, fix = advice.cause(key, self.code), advice.fix(key, self.code)
                raise refused(subject, params, error, summary, where, "no exception", cause, fix)
        if repr(plain) != repr(spoken):
            for host in hosts_of(subject.plugin.interfaces):
                self._same_effect(subject.having(host=host), plain, spoken)
        return None

    def _same_effect(self, subject: Subject, plain: Mapping[str, Any], spoken: Mapping[str, Any]) -> None:
        try:
            runs = [serve(subject, make_params(copy.deepcopy(fields))) for fields in (plain, spoken)]
        except calls.PluginError:
            return  # other checks judge that
        if not all(torch.equal(left.after, right.after) for left, right in zip(*runs, strict=True)):
            raise Failed(
                f"the case has a different effect on {subject.setup.host.upper()} after JSON and msgpack",
                {"case": subject.setup.case.text},
                f"the logits for extra_args {plain['extra_args']!r}",
                f"different logits for extra_args {spoken['extra_args']!r}",
                cause=advice.cause("strict", self.code),
                fix=advice.fix("strict", self.code),
                location=findings.method_location(subject.plugin.cls, STATE[subject.setup.host]),
            )


def _as_msgpack(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {str(key): _as_msgpack(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_msgpack(item) for item in value]
    return value
