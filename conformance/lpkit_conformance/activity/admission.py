"""Requests without the plugin's arguments that it admits, and the arguments that it reads."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lpkit.runtime import Request
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.activity.stand import continued, stepped
from lpkit_conformance.errors import StandinError
from lpkit_conformance.hosts import PluginError, default_host, drive
from lpkit_conformance.programs.generate import Arrive, Step
from lpkit_conformance.settings.cases import FOREIGN_ARGS, RARE, Foreign, WatchedArgs, make_params
from lpkit_conformance.settings.hosts import hosts_of
from lpkit_conformance.subject.memo import fact
from lpkit_conformance.subject.subject import COOL, TOP_P, WARM, Subject

STEPS = 6
"""Output tokens of the requests that are served to see if the plugin raises for them."""


@dataclass(frozen=True)
class Refusal:
    """A request without the plugin's arguments that does not get through.

    Attributes:
        args: its ``extra_args``.
        error: what ``validate_params`` raised, or a method that adds the request.
    """

    args: Mapping[str, Any] | None
    error: BaseException


@fact
def refusals(subject: Subject) -> tuple[Refusal, ...]:
    """Return the requests of :data:`FOREIGN_ARGS` that the plugin's validation or one of its methods refuses."""
    refused = []
    for args in FOREIGN_ARGS:
        error = subject.plugin.refusal(make_params({"extra_args": copy.deepcopy(args)})) or _raised(subject, args)
        if error is not None:
            refused.append(Refusal(args, error))
    return tuple(refused)


def let_in(subject: Subject) -> Foreign:
    """Return other plugins' ``extra_args`` that the plugin admits; empty if a method raises for all of them."""
    refused = {id(refusal.args): refusal.error for refusal in refusals(subject)}
    admitted = tuple(args for args in FOREIGN_ARGS if id(args) not in refused)
    raises = all(isinstance(error, PluginError) for error in refused.values())
    return admitted or (() if raises else FOREIGN_ARGS[-1:])


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "temperature": ("temperature 0", {"temperature": 0.0}),
    "cool": ("a temperature below 1", {"temperature": COOL}),
    "warm": ("a temperature above 1", {"temperature": WARM}),
    "seed": ("a seed", {"seed": 1000}),
    "stop_token_ids": ("stop token ids", {"stop_token_ids": [3, 4]}),
    "min_tokens": ("`min_tokens`", {"min_tokens": 1}),
    "top_p": ("`top_p`", {"top_p": TOP_P}),
    "top_k": ("`top_k`", {"top_k": 512}),
    "ignore_eos": ("`ignore_eos`", {"ignore_eos": True}),
    **{name: (f"`{name}`", {name: value}) for name, value in RARE.items()},
}
"""Kinds of requests by a field that servers set: in words, and with a value."""


def _kinds(subject: Subject) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the kinds whose field the case leaves to the server."""
    given = {*subject.setup.case.fields, *RARE.keys() - {*subject.plugin.fields_read}}
    return {kind: (words, fields) for kind, (words, fields) in KINDS.items() if not fields.keys() & given}


@fact
def refused_kinds(subject: Subject) -> dict[str, str]:
    """Return in words the kinds of requests that ``validate_params`` refuses only for their server's fields."""
    case, accepts = subject.setup.case, subject.plugin.accepts
    asked = _kinds(subject) if accepts(case.params()) else {}
    return {kind: words for kind, (words, fields) in asked.items() if not accepts(case.params(**fields))}


@fact
def raising_kinds(subject: Subject) -> dict[str, tuple[str, PluginError]]:
    """Return in words the kinds of accepted requests for which the plugin raises, if it does not for others.

    A kind is one of :data:`KINDS`, ``extra_args`` if a client leaves out an argument, the text of a relative of
    the case, which is its own words, or ``resumed``.
    """
    if subject.without:  # what is left out raises, too
        return raising_kinds(replace(subject, without=()))
    case = subject.setup.case
    plain = [case.params(), make_params({})] * 2
    kinds = {
        kind: (words, [case.params(**fields), make_params(fields)]) for kind, (words, fields) in _kinds(subject).items()
    }
    kinds["extra_args"] = ("fewer arguments", [subject.cases[variant].params() for variant in subject.with_less])
    others = [other for n, other in enumerate(subject.cases) if n and n not in subject.with_less]
    kinds |= {relative.text: (relative.text, [relative.params()]) for relative in others}
    kinds["resumed"] = ("output from before a preemption", plain)
    everyone = itertools.chain(plain, *(asked for _, asked in kinds.values()))
    if (
        _served(subject, *everyone, steps=STEPS, resumed=True) is None
        or _served(subject, *plain, steps=STEPS) is not None
    ):
        return {}
    tried = (
        (kind, words, _served(subject, *plain, *asked, steps=STEPS, resumed=kind == "resumed"))
        for kind, (words, asked) in kinds.items()
    )
    return {kind: (words, error) for kind, words, error in tried if error is not None}


def _raised(subject: Subject, args: Mapping[str, Any] | None) -> PluginError | None:
    """Return the exception of a host's methods for these arguments, if a request of the case raises none."""
    for host in hosts_of(subject.plugin.interfaces):
        there = subject.having(host=host)
        error = _served(there, make_params({"extra_args": copy.deepcopy(args)}))
        if error is not None and _served(there, subject.setup.case.params()) is None:
            return error
    return None


def _served(subject: Subject, *asked: SamplingParams, steps: int = 0, resumed: bool = False) -> PluginError | None:
    """Serve the requests that the plugin accepts; return its exception, if any.

    ``resumed``: they leave, and come again with their output.
    """
    prompt = subject.model.prompt("a", 5, None)
    accepted = [
        subject.completed(copy.deepcopy(params), len(prompt)) for params in asked if subject.plugin.accepts(params)
    ]
    requests = [Request(f"a{nth}", params, [*prompt], 10**6) for nth, params in enumerate(accepted)]
    if not requests:
        return None
    try:
        driver = drive(subject, max(4, len(requests)))
        driver.begin(entering=requests)
        for _ in range(steps):
            continued(subject, driver, requests, stepped(subject, driver, requests)[1])
            driver.begin()
        if resumed:
            driver.begin([request.request_id for request in requests])
            driver.begin(entering=requests)
            stepped(subject, driver, requests)
    except PluginError as error:
        return error
    except StandinError:  # the checks that need what the stand-in lacks say so
        return None
    return None


PRIVATE = "_lpkit_"
"""Beginning of the keys that lpkit itself keeps among a request's arguments."""


@fact
def keys_read(subject: Subject) -> frozenset[str]:
    """Return the keys of ``extra_args`` that the plugin reads in validation and in the first steps on its host."""
    read: set[str] = set()
    variants = [variant for variant in (None, *subject.variants) for _ in subject.foreign or FOREIGN_ARGS[:1]]
    watched = [subject.params(variant, salt=salt) for salt, variant in enumerate(variants)]
    for params in watched:
        params.extra_args = WatchedArgs(params.extra_args, read) if params.extra_args is not None else None
        subject.plugin.refusal(params)
    if subject.setup.host:
        with contextlib.suppress(PluginError):
            host = default_host(subject, len(variants))
            for nth, (variant, params) in enumerate(zip(variants, watched, strict=True)):
                host.pool.arrive(Arrive(f"r{nth}", variant))
                host.pool.running[f"r{nth}"].request.params = params
            for _ in host.run([Step(2)]):
                pass
    return frozenset(key for key in read if not key.startswith(PRIVATE))
