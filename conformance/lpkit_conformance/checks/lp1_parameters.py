"""LP1: construction and per-request parameters."""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.ladder import mixed_arrivals
from lpkit_conformance.hosts.calls import PluginError, place_of
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.oracle.compare import compare
from lpkit_conformance.oracle.findings import departure, method_place, raised
from lpkit_conformance.oracle.verify import default_host, solo_runs
from lpkit_conformance.programs.generate import Arrive, Program, Step, program
from lpkit_conformance.results import Failed, Finding, Skipped
from lpkit_conformance.settings.cases import make_params

ODD_VALUES: tuple[Any, ...] = (
    None,
    "",
    "x",
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63 - 1,
    2**63,
    0.0,
    -0.5,
    1e30,
    math.nan,
    math.inf,
    [],
    [0],
    ["x"],
    [-1],
    [[1]],
    list(range(100)),
    {},
    {"a": 1},
)
"""What clients send by mistake."""


def validate(subject: PluginUnderTest, params: SamplingParams) -> None:
    """``validate_params`` where the class has one."""
    method = getattr(subject.cls, "validate_params", None)
    if method is not None:
        method(params)


def own_keys(subject: PluginUnderTest) -> list[str]:
    return list(subject.case.fields.get("extra_args") or {})


def odd_requests(subject: PluginUnderTest) -> Iterator[tuple[str, Any, SamplingParams]]:
    """The case with one argument replaced by each odd value."""
    for key in own_keys(subject):
        for value in ODD_VALUES:
            fields = copy.deepcopy(subject.case.fields)
            fields["extra_args"][key] = value
            yield key, value, make_params(fields)


class LP101(Check):
    """Instances can be made with what the engine passes.

    V1 calls ``cls(vllm_config, device, is_pin_memory)``, V2 ``cls(vllm_config, req_states)``; every engine that
    has the plugin installed does so, and there may be no tokenizer.

    Why: an exception in the constructor keeps every engine in that environment from starting.

    Fix: take these arguments, load nothing heavy, need no tokenizer until a request asks for one.
    """

    code, name, requires = "LP101", "constructs", ("LP001",)

    def run(self, subject: PluginUnderTest) -> str | None:
        try:
            default_host(subject, subject.max_num_seqs)
            default_host(subject, 1)
        except PluginError as error:
            raise Failed(raised(error, fix=self.sections()["fix"])) from error
        return None


class LP102(Check):
    """Requests that do not use the plugin are accepted.

    ``validate_params`` sees every request of the server: without ``extra_args``, with an empty one, with other
    plugins' keys.

    Why: a plugin that refuses what it does not know takes the server down for everybody else.

    Fix: begin with ``args = params.extra_args or {}`` and return when none of your own keys is in it.
    """

    code, name, hosts, requires = "LP102", "accepts-others", (), ("LP001",)

    def run(self, subject: PluginUnderTest) -> str | None:
        for salt in range(4):
            params = subject.params(None, salt=salt)
            try:
                validate(subject, params)
            except BaseException as error:
                raise Failed(
                    Finding(
                        "validate_params refuses a request that does not use the plugin",
                        where={"extra_args": repr(params.extra_args)},
                        expected="no exception",
                        got=f"{type(error).__name__}: {error}"[:300],
                        fix=self.sections()["fix"],
                        place=place_of(error) or method_place(subject.cls, "validate_params"),
                    )
                ) from None
        return None


class LP103(Check):
    """Bad arguments are refused with ``ValueError`` and nothing else.

    vLLM turns ``ValueError`` into HTTP 400 for that request; any other exception is an internal server error.

    Why: comparing a string with a number raises ``TypeError``: the client is told that the server failed, and not
    what to change.

    Fix: check types before values, or declare the arguments as ``lpkit.Params``.
    """

    code, name, hosts, requires = "LP103", "raises-value-error", (), ("LP001",)

    def run(self, subject: PluginUnderTest) -> str | None:
        tried = 0
        for key, value, params in odd_requests(subject):
            tried += 1
            try:
                validate(subject, params)
            except ValueError:
                continue
            except BaseException as error:
                raise Failed(
                    Finding(
                        f"validate_params raises {type(error).__name__} for {key}={value!r}",
                        where={"extra_args": repr(params.extra_args)},
                        expected="ValueError, or acceptance",
                        got=f"{type(error).__name__}: {error}"[:300],
                        fix=self.sections()["fix"],
                        place=place_of(error) or method_place(subject.cls, "validate_params"),
                    )
                ) from None
        if not tried:
            raise Skipped("the case has no extra_args to spoil")
        return f"{tried} odd values"


class LP104(Check):
    """What was accepted does not explode later.

    A request that ``validate_params`` let in goes through the whole life cycle without an exception.

    Why: an exception in ``update_state``, ``add_request`` or ``apply`` ends the engine for all requests: one
    client's 2**63 or out-of-vocabulary token id is everybody's outage.

    Fix: refuse it in ``validate_params``. A token id beyond the vocabulary cannot be seen there: compare it when the
    request is added (``vllm_config.model_config.get_vocab_size()``, ``req_states.vocab_size``) and leave such a
    request alone.
    """

    code, name, requires = "LP104", "accepted-then-works", ("LP101", "LP301")

    def run(self, subject: PluginUnderTest) -> str | None:
        tried = 0
        for key, value, params in odd_requests(subject):
            if not subject.accepts(params):
                continue
            tried += 1
            try:
                host = default_host(subject, 4)
                host.pool.do(Arrive("a", 0))
                host.pool.running["a"].request.params = params
                for _ in host.run((Step(2),)):
                    pass
            except PluginError as error:
                finding = raised(error, fix=self.sections()["fix"])
                argument = f"{key}={reprlib.repr(value)}"
                where = {**finding.where, "argument": argument}
                raise Failed(
                    Finding(
                        f"{argument} is accepted by validate_params, then {error.method} {error.summary}",
                        where,
                        finding.expected,
                        finding.got,
                        (),
                        "the argument is used without a check of its type or range",
                        finding.fix,
                        finding.place,
                    )
                ) from error
        if not tried:
            raise Skipped("validate_params accepted none of the odd values")
        return f"{tried} odd values accepted"


class LP105(Check):
    """The request's parameters are left as they are.

    ``SamplingParams`` and its ``extra_args`` belong to the engine and may be shared by several requests. That goes
    for requests which do not use the plugin, too.

    Why: a popped key is missing when the request resumes after preemption, and for its twins.

    Fix: read; copy what you want to change.
    """

    code, name, requires = "LP105", "leaves-params", ("LP101", "LP301")

    def run(self, subject: PluginUnderTest) -> str | None:
        requests: list[tuple[int | None, SamplingParams]] = [
            (variant, subject.params(variant)) for variant in range(len(subject.cases))
        ]
        requests += [(None, subject.params(None, salt=salt)) for salt in range(4)]
        for variant, params in requests:
            before = repr(params), copy.deepcopy(dict(params.extra_args or {}))
            try:
                validate(subject, params)
                host = default_host(subject, 4)
                host.pool.do(Arrive("a", variant))
                host.pool.running["a"].request.params = params
                for _ in host.run((Step(3),)):
                    pass
            except ValueError:
                if variant is None:
                    continue  # LP102 judges that
                raise Skipped("validate_params refuses the case") from None
            except PluginError as error:
                raise Failed(raised(error)) from error
            if (repr(params), dict(params.extra_args or {})) != before:
                raise Failed(
                    Finding(
                        "the plugin changed the request's SamplingParams",
                        expected=f"extra_args {before[1]!r}",
                        got=f"extra_args {dict(params.extra_args or {})!r}",
                        fix=self.sections()["fix"],
                        place=method_place(subject.cls, "update_state" if subject.host == "v1" else "add_request"),
                    )
                )
        return None


class LP106(Check):
    """The case itself is accepted, and does the same after its way through JSON.

    ``vllm_xargs`` travel through JSON and msgpack: ``True`` may arrive as 1, a tuple as a list.

    Why: arguments that work offline, and online are refused or have no effect, are found by users, not by tests.

    Fix: accept 0 and 1 for bools, and lists for tuples and sets; or correct the case, if it was never a valid one.
    """

    code, name, hosts, requires = "LP106", "accepts-the-case", (), ("LP001",)

    def run(self, subject: PluginUnderTest) -> str | None:
        plain = copy.deepcopy(subject.case.fields)
        spoken = copy.deepcopy(plain)
        if spoken.get("extra_args"):
            spoken["extra_args"] = _as_msgpack(spoken["extra_args"])
        for how, fields in (("as written", plain), ("after JSON and msgpack", spoken)):
            try:
                validate(subject, make_params(fields))
            except BaseException as error:
                raise Failed(
                    Finding(
                        f"validate_params refuses the case {how}",
                        where={"case": subject.case.text},
                        expected="no exception",
                        got=f"{type(error).__name__}: {error}"[:300],
                        cause="the case is wrong, or the plugin compares types too strictly",
                        fix=self.sections()["fix"],
                        place=place_of(error) or method_place(subject.cls, "validate_params"),
                    )
                ) from None
        if repr(plain) != repr(spoken):
            for host in sorted(subject.interfaces):
                self._same_effect(subject, host, plain, spoken)
        return None

    def _same_effect(self, subject: PluginUnderTest, host: str, plain: dict[str, Any], spoken: dict[str, Any]) -> None:
        try:
            runs = [_alone(replace(subject, host=host), fields) for fields in (plain, spoken)]
        except PluginError:
            return  # other checks judge that
        if not all(torch.equal(one, other) for one, other in zip(*runs, strict=True)):
            raise Failed(
                Finding(
                    f"the case has another effect on {host.upper()} after JSON and msgpack",
                    {"case": subject.case.text},
                    f"as for extra_args {plain['extra_args']!r}",
                    f"other logits for extra_args {spoken['extra_args']!r}",
                    cause="the plugin compares types too strictly, for example with `is True`",
                    fix=self.sections()["fix"],
                    place=method_place(subject.cls, "update_state" if host == "v1" else "add_request"),
                )
            )


def _alone(subject: PluginUnderTest, fields: dict[str, Any]) -> list[torch.Tensor]:
    """What a lone request with these parameters gets."""
    host = default_host(subject, 4)
    host.pool.do(Arrive("a", 0))
    host.pool.running["a"].request.params = make_params(copy.deepcopy(fields))
    return [seen.after for seen in host.run((Step(3),))]


def _as_msgpack(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {str(key): _as_msgpack(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_msgpack(item) for item in value]
    return value


class LP108(Check):
    """Two instances in one process do not share state.

    Data-parallel engines, tests and notebooks make several instances of one class.

    Why: a dictionary written as a class attribute is one dictionary for all instances.

    Fix: create state in ``__init__``.
    """

    code, name, requires, needs_action = "LP108", "instances-are-separate", ("LP101", "LP201"), True

    def run(self, subject: PluginUnderTest) -> str | None:
        solo = solo_runs(subject)
        programs = (
            program("first", mixed_arrivals(4), Step(2)),
            program("second", [Arrive("x", 3), Arrive("y", None), Arrive("z", 1)], Step(2)),
        )
        try:
            hosts = [default_host(subject, 8) for _ in programs]
            runs = [iter(list(host.run(_without_steps(item)))) for host, item in zip(hosts, programs, strict=True)]
            assert not [seen for run in runs for seen in run]
            acted = False
            for _ in range(3):
                for number, host in enumerate(hosts):
                    for seen in host.run((Step(),)):
                        acted |= solo.prepare(host.pool.requests)
                        mismatch = compare(seen, solo)
                        if mismatch is not None:
                            where = {"instance": str(number + 1)}
                            raise Failed(departure(subject, mismatch, where, (), self.sections()["fix"]))
        except PluginError as error:
            raise Failed(raised(error, fix=self.sections()["fix"])) from error
        if not acted:
            raise Skipped("never active: the plugin changed no logit of any request")
        return None


def _without_steps(item: Program) -> list[Any]:
    return [op for op in item.ops if not isinstance(op, Step)]
