"""Finds the module of a host by its name in the table."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from lpkit.runtime import Engine, Request

from lpkit_conformance.hosts.base import Driver, Host
from lpkit_conformance.hosts.recorded import TraceHost
from lpkit_conformance.hosts.steady import ProcessorCandidate
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.subject import Subject


@dataclass(frozen=True)
class HostParts:
    """The classes that a host's module provides, as its ``PARTS``.

    Attributes:
        driver: builds and steps one instance.
        host: runs programs.
        recorded: replays recorded traces.
        candidate: the class that ``lpkit bench`` measures.
        engine: the runner without a model.
    """

    driver: type[Driver]
    host: type[Host]
    recorded: type[TraceHost]
    candidate: type[ProcessorCandidate]
    engine: Callable[..., Engine]


def parts_of(host: str) -> HostParts:
    """Return the parts of a host.

    Raises:
        ValueError: if the table does not contain the host.
    """
    if host not in HOSTS:
        raise ValueError(f"there is no host {host!r}, only {', '.join(HOSTS)}")
    parts: HostParts = importlib.import_module(f"lpkit_conformance.hosts.{host}").PARTS
    return parts


def drive(subject: Subject, max_num_seqs: int | None = None) -> Driver:
    """A new instance of the plugin on its host."""
    return parts_of(subject.setup.host).driver(
        subject.plugin.cls, subject.setup.config(max_num_seqs), subject.setup.device
    )


def default_host(subject: Subject, max_num_seqs: int) -> Host:
    """A new host on which nothing unusual happens."""
    return parts_of(subject.setup.host).host(subject, max_num_seqs)


def alone(
    subject: Subject, driver: Driver, request: Request, character: str, variant: int | None, steps: int, new: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Serve a request that has an instance to itself; yield the row ``[1, vocab]`` before and after each step.

    Args:
        request: the request; gains a token behind each row.
        character, variant: select the model's logits and tokens.
        steps: number of steps; fewer if the request has all its tokens before.
        new: True if the instance does not have the request yet.
    """
    if request.params.max_tokens:
        steps = min(steps, request.params.max_tokens - len(request.output_token_ids))
    if steps < 1:
        return
    model = subject.model
    raw = model.rows([(character, request.total_len + n) for n in range(steps)])
    for n, before in enumerate(driver.stage(raw, [request.params] * steps).unsqueeze(1)):
        driver.begin(entering=[request] if new and n == 0 else [])
        after = driver.step(before, [request])
        yield before, after
        wanted = model.emit(character, variant, len(request.output_token_ids))
        driver.commit(request, model.sampled([wanted], after))
