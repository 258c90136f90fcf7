"""A process for one target's checks, started before it is known what they are: importing torch takes a second."""

from __future__ import annotations

from lpkit_conformance.processes.supervise import ONE_THREAD, Child

CHILD = "lpkit_conformance.suite.child:work"


def start_ahead() -> Child:
    """The process, which waits for its job. Code that starts it ends it."""
    return Child(CHILD, ONE_THREAD)
