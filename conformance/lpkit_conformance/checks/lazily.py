"""Modules that checks need only when they run: each is imported at its first use, so that listing checks is quick."""

# mypy: implicit-reexport
# ruff: noqa: F401

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
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
    from lpkit_conformance.explanation import changes, culprit, findings, history, state, trace_picture, verify, writes
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
    for _node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8"))):
        if isinstance(_node, ast.ImportFrom) and _node.col_offset:  # those above
            globals().update({item.name: Later(f"{_node.module}.{item.name}") for item in _node.names})
    np, torch = Later("numpy"), Later("torch")
