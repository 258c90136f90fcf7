"""Instances to compare with the instance of a failing step."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lpkit.runtime import Request

from lpkit_conformance.hosts import Host
from lpkit_conformance.programs.generate import Step
from lpkit_conformance.vllm_api.runners import V2

if TYPE_CHECKING:
    from lpkit_conformance.explanation.scenes import Scene


def in_its_place(scene: Scene, host: Host, occupant: Request | None) -> Any:
    """Return a new instance on the failing engine, in which no other request uses the plugin."""
    stranger = scene.subject.params(None)

    def alter(request: Request) -> Request | None:
        if request.request_id == scene.mismatch.request:
            return occupant or request
        if scene.subject.setup.interface == V2:
            return None
        other = copy.copy(request)
        other.params = stranger
        return other

    driver = host.anew(alter)
    assert driver is not None
    return driver.processor


def from_its_arrival(scene: Scene, host: Host, occupant: Request | None) -> Any:
    """Return an instance that serves the request alone, just before it applies the failing step."""
    if occupant is not None:
        return None
    request = scene.mismatch.request
    lone = scene.make_host(scene.subject, scene.size)

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        if method == "apply" and lone.pool.requests[request].request.total_len == scene.mismatch.position:
            raise _Reached
        yield

    with contextlib.suppress(_Reached), lone.driver.watched(watch):
        for _ in lone.run([host.pool.requests[request].arrived, Step(scene.mismatch.position)]):
            pass
    return lone.driver.processor


def as_added(scene: Scene, host: Host, occupant: Request | None) -> Any:
    """Return a new instance on the failing engine that gets all of its requests."""
    driver = host.anew()
    assert driver is not None
    return driver.processor


class _Reached(Exception):
    """An instance has come to the step in question."""
