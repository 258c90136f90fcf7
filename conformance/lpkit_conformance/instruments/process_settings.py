"""Settings of a process that its code shares: what a plugin may have changed, and putting it back."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

LIBRARIES = ("TORCHINDUCTOR_", "TRITON_")
"""Variables that torch sets for itself when it compiles."""


def settings() -> dict[str, Any]:
    """Settings of the process, by name."""
    root = logging.getLogger()
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "grad mode": torch.is_grad_enabled(),
        "number of torch's threads": torch.get_num_threads(),
        "deterministic mode": torch.are_deterministic_algorithms_enabled(),
        "precision of matrix products": torch.get_float32_matmul_precision(),
        "environment": {name: value for name, value in os.environ.items() if not name.startswith(LIBRARIES)},
        "root logger's handlers": list(root.handlers),
        "root logger's level": logging.getLevelName(root.level),
        "disabled levels of logging": logging.root.manager.disable,
    }


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Afterwards the settings are what they were."""
    root = logging.getLogger()
    dtype, device, grad = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    kept = list(root.handlers), root.level, logging.root.manager.disable
    threads, environment = torch.get_num_threads(), dict(os.environ)
    deterministic, precision = torch.get_deterministic_debug_mode(), torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_grad_enabled(grad)
        if torch.get_deterministic_debug_mode() != deterministic:  # setting it imports a compiler
            torch.set_deterministic_debug_mode(deterministic)
        if torch.get_float32_matmul_precision() != precision:
            torch.set_float32_matmul_precision(precision)
        root.handlers[:], root.level, logging.root.manager.disable = kept
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)


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
