"""Defects that LP606 must catch."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from lpkit_conformance.processes import tree

from zoo.bases import Dense
from zoo.registry import defect


@contextmanager
def ending_children() -> Iterator[None]:
    """Ends what a specimen has started."""
    before = tree.children()
    try:
        yield
    finally:
        for process in tree.children().keys() - before.keys():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


@defect("LP606", "a helper process, started once and ended by nobody", surroundings=ending_children)
class StartsHelper(Dense):
    helper: ClassVar[Any] = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.helper is None:
            arguments = [sys.executable, "-c", "import time; time.sleep(600)"]
            type(self).helper = os.spawnv(os.P_NOWAIT, sys.executable, arguments)
