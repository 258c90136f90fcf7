"""Modules that checks need only when they run: each is imported at its first use, so that listing checks is quick."""

# mypy: implicit-reexport
# ruff: noqa: F401

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any


class Later:
    """A module that is imported when its first attribute is read."""

    def __init__(self, name: str) -> None:
        self._module = cache(lambda: import_module(name))

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._module(), attribute)


if TYPE_CHECKING:
    import numpy as np
    import torch
    from lpkit import runtime
    from lpkit.portable import by_slot
    from lpkit.runtime.engine import v1_async

    from lpkit_conformance.activity import acting, admission, stand
    from lpkit_conformance.checks import declined, dropped, engine_data, exact_ids, hostile, odd_arguments, spoilt
    from lpkit_conformance.expectation import compare, distributions, rank_process, ranks, solo, speculation
    from lpkit_conformance.explanation import (
        changes,
        culprit,
        findings,
        following,
        state,
        trace_picture,
        verify,
        writes,
    )
    from lpkit_conformance.hosts import beams, parts, recorded, requests, v1, v2
    from lpkit_conformance.hosts.base import Driver, Host, Watch
    from lpkit_conformance.instruments import (
        devices,
        dispatch,
        edits,
        host_reads,
        in_flight,
        meta_kernels,
        module_state,
        operations,
        process_settings,
        recorded_steps,
        trails,
        waits,
    )
    from lpkit_conformance.subject import calls
    from lpkit_conformance.subject.subject import Subject
    from lpkit_conformance.vllm_api import stub
    from lpkit_conformance.watch import rules
else:
    np, torch = Later("numpy"), Later("torch")
    Driver = Host = Subject = Watch = None  # in annotations only
    for _package, _modules in {
        "lpkit": "runtime",
        "lpkit.portable": "by_slot",
        "lpkit.runtime.engine": "v1_async",
        "lpkit_conformance.activity": "acting admission stand",
        "lpkit_conformance.checks": "declined dropped engine_data exact_ids hostile odd_arguments spoilt",
        "lpkit_conformance.expectation": "compare distributions rank_process ranks solo speculation",
        "lpkit_conformance.explanation": "changes culprit findings following state trace_picture verify writes",
        "lpkit_conformance.hosts": "beams parts recorded requests v1 v2",
        "lpkit_conformance.instruments": "devices dispatch edits host_reads in_flight meta_kernels module_state "
        "operations process_settings recorded_steps trails waits",
        "lpkit_conformance.subject": "calls",
        "lpkit_conformance.vllm_api": "stub",
        "lpkit_conformance.watch": "rules",
    }.items():
        globals().update({_module: Later(f"{_package}.{_module}") for _module in _modules.split()})
