"""Finds the module of a host by its name in the table."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from lpkit.runtime import Engine

from lpkit_conformance.hosts.base import Driver, Host
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.recorded import TraceHost
from lpkit_conformance.hosts.steady import ProcessorCandidate
from lpkit_conformance.settings.hosts import HOSTS


@dataclass(frozen=True)
class HostParts:
    """What the module of a host offers, as its ``PARTS``.

    Attributes:
        driver: builds and steps one instance.
        host: runs programs.
        recorded: replays recorded traces.
        candidate: what ``lpkit bench`` measures.
        engine: the runner without a model.
    """

    driver: type[Driver]
    host: type[Host]
    recorded: type[TraceHost]
    candidate: type[ProcessorCandidate]
    engine: Callable[..., Engine]


def parts_of(host: str) -> HostParts:
    """The parts of a host.

    Raises:
        ValueError: if the table has no such host.
    """
    if host not in HOSTS:
        raise ValueError(f"there is no host {host!r}, only {', '.join(HOSTS)}")
    found: HostParts = importlib.import_module(f"lpkit_conformance.hosts.{host}").PARTS
    return found


def drive(subject: PluginUnderTest, max_num_seqs: int | None = None) -> Driver:
    """A new instance of the plugin on its host."""
    return parts_of(subject.host).driver(subject.cls, subject.config(max_num_seqs), subject.device)
