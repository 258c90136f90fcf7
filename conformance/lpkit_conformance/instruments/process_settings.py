"""Settings of a process that its code shares: what a plugin may have changed, and putting it back."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch

LIBRARIES = ("TORCHINDUCTOR_", "TRITON_")
"""Variables that torch sets for itself when it compiles."""

ROOT = logging.getLogger()


def _collect(automatically: bool) -> None:
    (gc.enable if automatically else gc.disable)()


def _deterministic() -> str:
    return ("default", "warn", "error")[torch.get_deterministic_debug_mode()]


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


def _set_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _set_handlers(handlers: list[logging.Handler]) -> None:
    ROOT.handlers[:] = handlers


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default device": (torch.get_default_device, _set_device),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "number of torch's threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic mode": (_deterministic, torch.set_deterministic_debug_mode),
    "precision of matrix products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "environment": (lambda: dict(os.environ), _set_environment),
    "root logger's handlers": (lambda: list(ROOT.handlers), _set_handlers),
    "root logger's level": (lambda: logging.getLevelName(ROOT.level), ROOT.setLevel),
    "disabled levels of logging": (lambda: logging.root.manager.disable, logging.disable),
    "garbage collection": (gc.isenabled, _collect),
    "working directory": (os.getcwd, os.chdir),
    "handling of numpy's errors": (np.geterr, lambda handling: np.seterr(**handling)),
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "handler of SIGTERM": (partial(signal.getsignal, signal.SIGTERM), partial(signal.signal, signal.SIGTERM)),
}
"""How to read and to set each setting."""


def settings() -> dict[str, Any]:
    """Settings of the process, by name."""
    values = {name: read() for name, (read, _) in SETTINGS.items()}
    kept = values["environment"].items()
    return {**values, "environment": {name: value for name, value in kept if not name.startswith(LIBRARIES)}}


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Afterwards the settings are what they were."""
    before = {name: read() for name, (read, _) in SETTINGS.items()}
    try:
        yield
    finally:
        for name, (read, put) in SETTINGS.items():
            if read() != before[name]:  # setting some of them is slow: it imports a compiler
                put(before[name])


@contextlib.contextmanager
def threads_started() -> Iterator[list[str]]:
    """Collect the names of the Python threads that are started within the context."""
    names: list[str] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        names.append(thread.name)
        start(thread)

    with mock.patch.object(threading.Thread, "start", noted):
        yield names


@contextlib.contextmanager
def same_random_numbers() -> Iterator[None]:
    """Run with fixed global random states; restore the previous states afterwards."""
    numpy, states = sys.modules.get("numpy"), (random.getstate(), torch.get_rng_state())
    drawn = numpy.random.get_state() if numpy else None
    random.seed(0)
    torch.default_generator.manual_seed(0)
    if numpy:
        numpy.random.seed(0)
    try:
        yield
    finally:
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        if numpy:
            numpy.random.set_state(drawn)
