"""`lpkit watch`: what any correct processor keeps to, checked on samples of the steps of a live server.

vLLM calls :func:`activate` in each of its processes, so this module imports nothing but the standard library, and does
nothing unless ``LPKIT_WATCH`` asks for it. Nothing here may disturb serving: what goes wrong is counted and logged.
"""

from __future__ import annotations

import os
from typing import Any

from lpkit_conformance.watch.switch import OFF, SWITCH


def activate() -> None:
    """The entry point in ``vllm.general_plugins``: have vLLM's processors watched in this process, if asked for."""
    if os.environ.get(SWITCH, "").strip().lower() in OFF:
        return
    from lpkit_conformance.watch.install import install

    install()


def endpoints() -> Any:
    """The entry point in ``vllm.endpoint_plugins``: adds ``/lpkit/metrics`` and ``/lpkit/violations`` to the server."""
    from lpkit_conformance.watch.endpoints import Endpoints

    return Endpoints()
